package aitercmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const native = "native"

const archUsage = "targets: native, or a list such as gfx942,gfx90a:xnack-,sm_90,cpu (default $GPU_ARCHS, else native)"

// targets returns the targets of --arch, a list in which native means the targets of this
// machine. Without the flag it reads GPU_ARCHS. The default is native.
func (a *app) targets(ctx context.Context, arch string) ([]target.Target, error) {
	devs, err := a.openDevices()
	if err != nil {
		return nil, err
	}
	defer devs.Close()
	if list := a.getenv("GPU_ARCHS"); arch == "" && list != "" {
		out, err := parseTargets(ctx, devs, list)
		if err != nil {
			return nil, fmt.Errorf("GPU_ARCHS is %q: %w", list, err)
		}
		return out, nil
	}
	return parseTargets(ctx, devs, cmp.Or(arch, native))
}

// checkArchFlag refuses an --arch without a target, such as an unset variable of the shell.
// Without this check the command would build for the devices of this machine.
func checkArchFlag(cmd *cobra.Command) error {
	if f := cmd.Flags().Lookup("arch"); f != nil && f.Changed && strings.TrimSpace(f.Value.String()) == "" {
		return usagef("--arch %q: expected a target, such as gfx942, cpu or native; leave it out for its default", f.Value)
	}
	return nil
}

// parseTargets returns the targets of a list, each once.
func parseTargets(ctx context.Context, devs *device.Devices, list string) ([]target.Target, error) {
	var out []target.Target
	for _, item := range settings.ListItems(list) {
		some, err := parseTarget(ctx, devs, item)
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

// parseTarget returns the targets of one item of --arch.
func parseTarget(ctx context.Context, devs *device.Devices, item string) ([]target.Target, error) {
	if item == native {
		return nativeTargets(ctx, devs)
	}
	t, err := target.Parse(item)
	return []target.Target{t}, err
}

// nativeTargets returns the targets that calls on this machine's devices request:
// their architectures without features.
func nativeTargets(ctx context.Context, devs *device.Devices) ([]target.Target, error) {
	found, err := devs.Native(ctx)
	if err != nil {
		return nil, err
	}
	var out []target.Target
	for _, t := range found {
		if t = t.WithoutFeatures(); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// supportRequest returns the part request of the support library, which each build
// includes. It is empty if the configuration has no such module.
func supportRequest(cfg *opconfig.Config) []jit.Request {
	if _, err := cfg.Module(settings.SupportModule); err != nil {
		return nil
	}
	return []jit.Request{settings.SupportRequest()}
}
