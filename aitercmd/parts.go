package aitercmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// partFlags select parts of modules. Without them a module is built whole.
type partFlags struct {
	ops   []string
	dtype []string
	axes  []string // "dtype=float16,bfloat16", "width=4"
}

func (f *partFlags) add(a *app, cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.ops, "op", nil, "only the parts of these operators, as a first call builds them")
	fl.StringSliceVar(&f.dtype, "dtype", nil, "only the parts for these element types: short for --axis dtype=...")
	fl.StringArrayVar(&f.axes, "axis", nil,
		"only the parts for values of an axis, `NAME=VALUE,...`; a size stands for its range (aiterctl describe MODULE)")
	a.completeFlag(cmd, "dtype", "float32", "float16", "bfloat16")
	for flag, names := range map[string]cobra.CompletionFunc{"op": a.opNames, "axis": a.axisValues} {
		if err := cmd.RegisterFlagCompletionFunc(flag, names); err != nil {
			fmt.Fprintf(a.err, "%s: completion of --%s: %v\n", a.program.Name, flag, err)
		}
	}
}

// values returns the selected values by axis.
func (f *partFlags) values() (map[string][]string, error) {
	values := map[string][]string{}
	for _, text := range f.axes {
		name, list, ok := strings.Cut(text, "=")
		if !ok || name == "" || list == "" {
			return nil, usagef("--axis %q: expected NAME=VALUE,... such as dtype=float16 or width=4", text)
		}
		values[name] = append(values[name], strings.Split(list, ",")...)
	}
	if len(f.dtype) > 0 {
		values["dtype"] = append(values["dtype"], f.dtype...)
	}
	return values, nil
}

// moduleSelection is the modules, parts and targets of a command line.
type moduleSelection struct {
	modules []string // names; that of an operator selects its parts, as --op does
	all     bool     // all modules, each for the targets that it supports
	parts   *partFlags
	targets []target.Target
}

// requests returns the part requests: the modules or their selected parts, for every
// target. With all it leaves out the targets that a module does not support.
func (s moduleSelection) requests(cfg *opconfig.Config) ([]jit.Request, error) {
	s = s.withoutOperators(cfg)
	mods, err := s.selectModules(cfg)
	if err != nil {
		return nil, err
	}
	values, err := s.parts.values()
	if err != nil {
		return nil, err
	}
	if err := s.checkAxes(mods, values); err != nil {
		return nil, err
	}
	var reqs []jit.Request
	for _, m := range mods {
		for _, t := range s.targets {
			if !m.Supports(t) && s.all {
				continue
			}
			some, err := s.moduleRequests(m, t, values)
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

// withoutOperators returns the selection with the operators among its modules as --op.
func (s moduleSelection) withoutOperators(cfg *opconfig.Config) moduleSelection {
	var modules []string
	parts := *s.parts
	parts.ops = slices.Clone(parts.ops)
	for _, name := range s.modules {
		_, unknown := cfg.Module(name)
		if _, _, err := cfg.Op(name); err == nil && unknown != nil {
			parts.ops = append(parts.ops, name)
		} else {
			modules = append(modules, name)
		}
	}
	s.modules, s.parts = modules, &parts
	return s
}

// selectModules returns the modules to build.
func (s moduleSelection) selectModules(cfg *opconfig.Config) ([]*opconfig.Module, error) {
	if s.all {
		return slices.DeleteFunc(slices.Clone(cfg.Modules), func(m *opconfig.Module) bool { return m.Name == settings.SupportModule }), nil
	}
	var mods []*opconfig.Module
	add := func(m *opconfig.Module) {
		if !slices.Contains(mods, m) {
			mods = append(mods, m)
		}
	}
	for _, name := range s.modules {
		m, err := cfg.Module(name)
		if err != nil {
			_, _, errOp := cfg.Op(name)
			return nil, nearestName(errOp, err)
		}
		add(m)
	}
	for _, name := range s.parts.ops {
		m, _, err := cfg.Op(name)
		if err != nil {
			return nil, err
		}
		if len(s.modules) > 0 && !slices.Contains(mods, m) {
			return nil, usagef("--op %s is in %s, which is not one of the modules to build; leave the modules out", name, m.Name)
		}
		add(m)
	}
	return mods, nil
}

// checkAxes refuses an axis that a module does not have. With all it refuses an axis that no
// module has, and modules without the axis are built whole.
func (s moduleSelection) checkAxes(mods []*opconfig.Module, values map[string][]string) error {
	for axis := range values {
		for i, m := range mods {
			has := slices.ContainsFunc(m.Axes, func(a opconfig.Axis) bool { return a.Name == axis })
			if has && s.all {
				break
			}
			if !has && (!s.all || i == len(mods)-1) {
				_, err := m.Values(axis, nil)
				return err
			}
		}
	}
	return nil
}

// moduleRequests returns the requests for one module and target.
func (s moduleSelection) moduleRequests(m *opconfig.Module, t target.Target, values map[string][]string) ([]jit.Request, error) {
	if !m.Supports(t) {
		return nil, &opconfig.UnsupportedTargetError{Module: m.Name, Target: t, Supported: supportedTargets(m)}
	}
	sel := opconfig.Selection{Values: map[string][]string{}}
	for _, a := range m.Axes {
		if v, ok := values[a.Name]; ok {
			sel.Values[a.Name] = v
		}
	}
	for _, op := range m.Ops {
		if slices.Contains(s.parts.ops, op.Name) {
			sel.Ops = append(sel.Ops, op.Name)
		}
	}
	if len(sel.Ops)+len(sel.Values) == 0 {
		if len(s.parts.ops) > 0 {
			return nil, usagef("none of --op is in %s; leave the module out", m.Name)
		}
		return []jit.Request{{Module: m.Name, Target: t}}, nil
	}
	parts, err := m.Parts(t, sel)
	var reqs []jit.Request
	for _, p := range parts {
		reqs = append(reqs, jit.Request{Module: m.Name, Target: t, Part: p})
	}
	return reqs, err
}

// partName returns the name of a module with its part in brackets, in words. The part is "" for the
// whole module.
func partName(module, part string) string {
	if part == "" {
		return module
	}
	return module + " (" + opconfig.Words(part) + ")"
}

// unitTarget describes the target and the axis values of a unit.
func unitTarget(target, values string) string {
	if values == "" {
		return target
	}
	return target + ", " + opconfig.Words(values)
}
