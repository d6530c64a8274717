package opconfig

import (
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// Plan lists the units to compile for one target, and what links them.
type Plan struct {
	Units     []Unit   // in the order of the configuration, the files of a glob sorted
	Include   []string // folders of the module, in search order
	LinkFlags []string
	Ops       []string // in the library, in the order of the configuration
}

// Unit is a translation unit: one source file with its flags.
type Unit struct {
	Source string   // relative to the root
	Flags  []string // the module's, then the source's, each as common, vendor, architecture; then the defines of axes
	// Optional are flags of compilers that accept them, each with its value.
	Optional [][]string
	Values   string // the axis values of the defines, as in [Part]; "" if the source depends on no axis
}

// Supports reports whether the module can be built for t: t is among its targets or, if it lists
// none, one of its sources is for t.
func (m *Module) Supports(t target.Target) bool {
	if len(m.Targets) > 0 {
		return anyMatches(m.Targets, t)
	}
	return slices.ContainsFunc(m.Sources, func(s Source) bool { return s.When.targets(t) })
}

// CheckTarget returns an *UnsupportedTargetError for a target that the module does not support.
func (m *Module) CheckTarget(t target.Target) error {
	if m.Supports(t) {
		return nil
	}
	return &UnsupportedTargetError{Module: m.Name, Target: t, Supported: m.supported()}
}

// Resolve returns the plan of the whole module for t, with a toolchain of the given version. Only
// conditions of sources on the toolchain use the version. The error is an
// *UnsupportedTargetError, *NoSourcesError, *DuplicateSourceError or *VersionError.
func (m *Module) Resolve(t target.Target, toolchainVersion string) (Plan, error) {
	return m.ResolvePart(t, toolchainVersion, Part{})
}

// ResolvePart is like [Module.Resolve], for a part of the module. If the module has no such
// part, the error is an *UnknownOpError or an *UnknownAxisError.
func (m *Module) ResolvePart(t target.Target, toolchainVersion string, part Part) (Plan, error) {
	if err := m.CheckTarget(t); err != nil {
		return Plan{}, err
	}
	resolved, err := m.resolvePart(part)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Include: slices.Clone(m.Include), LinkFlags: m.LinkFlags.For(t)}
	from := map[string]Position{}
	for _, s := range m.Sources {
		holds, err := s.When.holds(t, toolchainVersion)
		if err != nil {
			return Plan{}, err
		}
		if !holds || !resolved.needs(s, t) {
			continue
		}
		values, defines := resolved.values(s)
		flags := slices.Concat(m.Flags.For(t), s.Flags.For(t), defines)
		optional := slices.Concat(m.Flags.optionalFor(t), s.Flags.optionalFor(t))
		for _, file := range s.Files {
			if first, twice := from[file]; twice {
				return Plan{}, &DuplicateSourceError{Module: m.Name, Source: file, Target: t, First: first, Second: s.Pos}
			}
			from[file] = s.Pos
			plan.Units = append(plan.Units, Unit{Source: file, Flags: slices.Clone(flags), Optional: optional, Values: values})
		}
		plan.Ops = append(plan.Ops, resolved.ops(s)...)
	}
	if len(plan.Units) == 0 || !part.Whole() && len(plan.Ops) == 0 {
		return Plan{}, &NoSourcesError{Module: m.Name, Op: part.Op, Values: part.Values, Target: t, Toolchain: toolchainVersion}
	}
	plan.Ops = m.inOrder(plan.Ops)
	return plan, nil
}

// supported returns the targets of the module as the configuration writes them.
func (m *Module) supported() []string {
	if len(m.Targets) > 0 {
		return slices.Clone(m.Targets)
	}
	var list []string
	for _, s := range m.Sources {
		for _, v := range s.When.vendors() {
			if !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
	}
	return list
}

// optionalFor returns the optional flags for t, each with its value.
func (f FlagSet) optionalFor(t target.Target) [][]string {
	if f.Optional == nil {
		return nil
	}
	return groups(f.Optional.For(t))
}

// For returns the flags for t: the common ones, the vendor's, and those of every
// matching architecture pattern. Patterns with fewer fixed characters come first, because
// compilers use the last of several contradictory flags.
func (f FlagSet) For(t target.Target) []string {
	flags := slices.Clone(f.Common)
	switch t.Vendor() {
	case target.HIP:
		flags = append(flags, f.HIP...)
	case target.CUDA:
		flags = append(flags, f.CUDA...)
	case target.CPU:
		flags = append(flags, f.CPU...)
	}
	patterns := keys(f.Arch)
	slices.SortStableFunc(patterns, func(a, b string) int { return fixed(a) - fixed(b) })
	for _, p := range patterns {
		if matches(p, t) {
			flags = append(flags, f.Arch[p]...)
		}
	}
	return flags
}

// fixed counts the characters of a pattern that are not wildcards.
func fixed(pattern string) int {
	return len(pattern) - strings.Count(pattern, "*") - strings.Count(pattern, "?")
}
