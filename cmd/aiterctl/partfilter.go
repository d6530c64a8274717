package main

import (
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
)

// partFilter picks artifacts that are parts of modules.
type partFilter struct {
	ops    []string
	values map[string][]string // by axis
}

func (f *partFlags) filter() (partFilter, error) {
	values, err := f.values()
	return partFilter{f.ops, values}, err
}

func (f partFilter) empty() bool { return len(f.ops)+len(f.values) == 0 }

// picks says whether an artifact holds one of the operators, and was made for
// one value of each axis, of those that are asked for. A whole module is for all
// of them, and stays. A size picks every range that holds it, those of an earlier
// configuration too.
func (f partFilter) picks(x cache.Artifact) bool {
	if f.empty() {
		return true
	}
	if x.Part == "" || len(f.ops) > 0 && !slices.ContainsFunc(x.Ops, func(op string) bool { return slices.Contains(f.ops, op) }) {
		return false
	}
	made := partValues(x.Part)
	for axis, wanted := range f.values {
		if !slices.ContainsFunc(wanted, func(v string) bool { return v == made[axis] || holds(made[axis], v) }) {
			return false
		}
	}
	return true
}

// holds says whether a value is a range that holds a size.
func holds(value, size string) bool {
	r, isRange := opconfig.ParseRange(value)
	n, isSize := opconfig.ParseSize(size)
	return isRange && isSize && r.Holds(n)
}

// partValues are the values of axes in the name of a part: "typed dtype=float16".
func partValues(spec string) map[string]string {
	values := map[string]string{}
	words := strings.Fields(spec)
	for pair := range strings.SplitSeq(words[len(words)-1], ",") {
		if axis, value, ok := strings.Cut(pair, "="); ok {
			values[axis] = value
		}
	}
	return values
}

// check refuses what neither the configuration nor the cache has.
func (f partFilter) check(cfg *opconfig.Config, have []cache.Artifact) error {
	for _, op := range f.ops {
		if slices.ContainsFunc(have, func(x cache.Artifact) bool { return slices.Contains(x.Ops, op) }) {
			continue
		}
		if _, _, err := cfg.Op(op); err != nil {
			return err
		}
	}
	for axis, values := range f.values {
		for _, v := range values {
			one := partFilter{values: map[string][]string{axis: {v}}}
			if slices.ContainsFunc(have, one.picks) {
				continue
			}
			if err := checkValue(cfg, axis, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkValue refuses a value that no module's axis of that name has, in the words
// of one that has the axis.
func checkValue(cfg *opconfig.Config, axis, value string) error {
	var refusal error
	for _, m := range cfg.Modules {
		_, err := m.Values(axis, []string{value})
		if err == nil {
			return nil
		}
		if has := slices.ContainsFunc(m.Axes, func(a opconfig.Axis) bool { return a.Name == axis }); has || refusal == nil {
			refusal = err
		}
	}
	return refusal
}
