package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// partFlags choose parts of modules. Without them a module is built whole.
type partFlags struct {
	ops   []string
	dtype []string
	axes  []string // "dtype=float16,bfloat16", "width=4"
}

func (f *partFlags) add(a *app, cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.ops, "op", nil, "only these operators, apart: what a first call compiles")
	fl.StringSliceVar(&f.dtype, "dtype", nil, "only code for these element types, apart: short for --axis dtype=...")
	fl.StringArrayVar(&f.axes, "axis", nil, "only these values of an axis (aiterctl describe MODULE), apart; a size stands for its range: `NAME=VALUE,...`")
	a.completeFlag(cmd, "dtype", "float32", "float16", "bfloat16")
	for flag, names := range map[string]cobra.CompletionFunc{"op": a.opNames, "axis": a.axisValues} {
		if err := cmd.RegisterFlagCompletionFunc(flag, names); err != nil {
			fmt.Fprintf(a.err, "aiterctl: completion of --%s: %v\n", flag, err)
		}
	}
}

// values are the chosen values by axis.
func (f *partFlags) values() (map[string][]string, error) {
	values := map[string][]string{}
	for _, text := range f.axes {
		name, list, ok := strings.Cut(text, "=")
		if !ok || name == "" || list == "" {
			return nil, usagef("--axis %q: expected NAME=VALUE,... such as dtype=float16 or width=4", text)
		}
		values[name] = append(values[name], elementTypes(strings.Split(list, ","))...)
	}
	if len(f.dtype) > 0 {
		values["dtype"] = append(values["dtype"], elementTypes(f.dtype)...)
	}
	return values, nil
}

// elementTypes writes short names of types in full; what is no type stays, for
// the axis to refuse.
func elementTypes(words []string) []string {
	out := slices.Clone(words)
	for i, w := range words {
		if dt, err := tensor.ParseDType(w); err == nil {
			out[i] = dt.String()
		}
	}
	return out
}

// request is what the command line asks for.
type request struct {
	modules []string
	all     bool // modules, each for the targets that it supports
	parts   *partFlags
	targets []target.Target
}

// wanted returns what to build: the modules for every target or, with all, each
// module for the targets that it supports; whole, or the parts asked for.
func (r request) wanted(cfg *opconfig.Config) ([]jit.Request, error) {
	mods, err := r.named(cfg)
	if err != nil {
		return nil, err
	}
	values, err := r.parts.values()
	if err != nil {
		return nil, err
	}
	if err := r.checkAxes(mods, values); err != nil {
		return nil, err
	}
	var reqs []jit.Request
	for _, m := range mods {
		for _, t := range r.targets {
			if !m.Supports(t) && r.all {
				continue
			}
			some, err := r.of(m, t, values)
			if err != nil {
				return nil, err
			}
			for _, q := range some {
				if !slices.Contains(reqs, q) {
					reqs = append(reqs, q)
				}
			}
		}
	}
	return reqs, nil
}

// named returns the modules to build.
func (r request) named(cfg *opconfig.Config) ([]*opconfig.Module, error) {
	if r.all {
		return slices.DeleteFunc(slices.Clone(cfg.Modules), func(m *opconfig.Module) bool { return m.Name == supportModule }), nil
	}
	var mods []*opconfig.Module
	add := func(m *opconfig.Module) {
		if !slices.Contains(mods, m) {
			mods = append(mods, m)
		}
	}
	for _, name := range r.modules {
		m, err := cfg.Module(name)
		if err != nil {
			return nil, err
		}
		add(m)
	}
	for _, name := range r.parts.ops {
		m, _, err := cfg.Op(name)
		if err != nil {
			return nil, err
		}
		if len(r.modules) > 0 && !slices.Contains(mods, m) {
			return nil, usagef("--op %s is in %s, which is not among the modules to build; leave the modules out", name, m.Name)
		}
		add(m)
	}
	return mods, nil
}

// checkAxes refuses an axis that no module has. Of all modules some need not
// have it; they are built whole.
func (r request) checkAxes(mods []*opconfig.Module, values map[string][]string) error {
	for axis := range values {
		for i, m := range mods {
			has := slices.ContainsFunc(m.Axes, func(a opconfig.Axis) bool { return a.Name == axis })
			if has && r.all {
				break
			}
			if !has && (!r.all || i == len(mods)-1) {
				_, err := m.Values(axis, nil)
				return err
			}
		}
	}
	return nil
}

// of returns the requests for one module and target.
func (r request) of(m *opconfig.Module, t target.Target, values map[string][]string) ([]jit.Request, error) {
	if !m.Supports(t) {
		return nil, &opconfig.UnsupportedTargetError{Module: m.Name, Target: t, Supported: supported(m)}
	}
	sel := opconfig.Selection{Values: map[string][]string{}}
	for _, a := range m.Axes {
		if v, ok := values[a.Name]; ok {
			sel.Values[a.Name] = v
		}
	}
	for _, op := range m.Ops {
		if slices.Contains(r.parts.ops, op.Name) {
			sel.Ops = append(sel.Ops, op.Name)
		}
	}
	if len(sel.Ops)+len(sel.Values) == 0 {
		if len(r.parts.ops) > 0 {
			return nil, usagef("none of --op is in %s; leave the module out", m.Name)
		}
		return []jit.Request{{Module: m.Name, Target: t}}, nil
	}
	specs, err := m.Parts(t, sel)
	var reqs []jit.Request
	for _, s := range specs {
		reqs = append(reqs, jit.Request{Module: m.Name, Target: t, Part: s})
	}
	return reqs, err
}

// partName is a module, and the part of it in brackets.
func partName(module, spec string) string {
	if spec == "" {
		return module
	}
	return module + " (" + spec + ")"
}

// unitTarget is what a unit is compiled for.
func unitTarget(target, values string) string { return strings.TrimSpace(target + " " + values) }
