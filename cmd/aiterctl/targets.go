package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const native = "native"

const archUsage = "targets: native, or a list such as gfx942,gfx90a:xnack-,sm_90,cpu (default $GPU_ARCHS, else native)"

// targets reads --arch: a list in which native stands for what is in this
// machine. When the flag is not given GPU_ARCHS is read, and else native.
func (a *app) targets(ctx context.Context, devs *device.Devices, arch string) ([]target.Target, error) {
	if list := a.getenv("GPU_ARCHS"); arch == "" && list != "" {
		out, err := listedTargets(ctx, devs, list)
		if err != nil {
			return nil, fmt.Errorf("GPU_ARCHS is %q: %w", list, err)
		}
		return out, nil
	}
	return listedTargets(ctx, devs, firstOf(arch, native))
}

// archGiven refuses an --arch without a word in it, as of a variable that is not
// set: taken for none it would build for what is in this machine.
func archGiven(cmd *cobra.Command) error {
	if f := cmd.Flags().Lookup("arch"); f != nil && f.Changed && strings.TrimSpace(f.Value.String()) == "" {
		return usagef("--arch %q: expected a target, such as gfx942, cpu or native; leave it out for its default", f.Value)
	}
	return nil
}

func listedTargets(ctx context.Context, devs *device.Devices, list string) ([]target.Target, error) {
	var out []target.Target
	for _, item := range archItems(list) {
		some, err := archItem(ctx, devs, item)
		if err != nil {
			return nil, err
		}
		for _, t := range some {
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	if len(out) == 0 {
		_, err := target.ParseList(list)
		return nil, err
	}
	return out, nil
}

// archItems splits a list of targets.
func archItems(list string) []string {
	var items []string
	for _, item := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ';' }) {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// archItem is the targets that one item of --arch stands for.
func archItem(ctx context.Context, devs *device.Devices, item string) ([]target.Target, error) {
	if item == native {
		return nativeTargets(ctx, devs)
	}
	t, err := target.Parse(item)
	return []target.Target{t}, err
}

// nativeTargets are what calls on this machine's devices will ask for: their
// architectures, with any features.
func nativeTargets(ctx context.Context, devs *device.Devices) ([]target.Target, error) {
	found, err := devs.Native(ctx)
	if err != nil {
		return nil, err
	}
	var out []target.Target
	for _, t := range found {
		if t, err = plain(t); err != nil {
			return nil, err
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// plain is t without its features.
func plain(t target.Target) (target.Target, error) {
	if t.Vendor() == target.CPU {
		return t, nil
	}
	return target.Parse(t.Arch() + "!")
}

// supportModule holds the library that all modules call back into.
const supportModule = "module_aiter_ffi"

// supportRequest asks for the support library, which is built along with
// anything else. It is absent when the configuration has none.
func supportRequest(cfg *opconfig.Config) []jit.Request {
	cpu, err := target.Parse("cpu")
	if _, none := cfg.Module(supportModule); err != nil || none != nil {
		return nil
	}
	return []jit.Request{{Module: supportModule, Target: cpu}}
}
