package opconfig

import (
	"fmt"
	"slices"

	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit/target"
)

// LaunchParam is a launch parameter of an operator, with the values that a search measures. A call without a value for it uses
// the operator's own launch plan.
type LaunchParam struct {
	Name    string
	Doc     string
	Values  []int64
	Targets []string // vendors or patterns; empty: all targets
}

const (
	maxLaunchParams = 8   // of an operator
	maxCandidates   = 512 // combinations of the values of an operator's launch parameters on a target
)

// LaunchParams returns the launch parameters that the operator has on a target, in the order of the configuration.
func (o *Op) LaunchParams(t target.Target) []LaunchParam {
	var list []LaunchParam
	for _, p := range o.Tune {
		if len(p.Targets) == 0 || anyMatches(p.Targets, t) {
			list = append(list, p)
		}
	}
	return list
}

// launchParams reads an operator's table of launch parameters.
func (d *decoder) launchParams(op *Op, n *node) {
	if n == nil {
		return
	}
	if _, ok := n.value.(map[string]any); !ok {
		d.wrongType(n, "tune", "a table of launch parameters")
		return
	}
	if len(n.order) > maxLaunchParams {
		d.fail(n.key, "%s has %d launch parameters; expected at most %d", op.Name, len(n.order), maxLaunchParams)
		return
	}
	for _, name := range n.order {
		if d.full() {
			return
		}
		op.Tune = append(op.Tune, d.launchParam(name, n.fields[name]))
	}
	d.checkCandidates(op, n)
}

func (d *decoder) launchParam(name string, n *node) LaunchParam {
	p := LaunchParam{Name: name}
	if !isIdentifier(name) {
		d.fail(n.key, "bad name of a launch parameter %q; expected %s", name, wantOpName)
	}
	where := "tune." + name
	d.table(n, where, map[string]func(*node){
		"doc":     func(n *node) { p.Doc = d.text(n, "doc") },
		"values":  func(n *node) { p.Values = d.launchValues(n, where) },
		"targets": func(n *node) { d.names(n, "targets", d.pattern(&p.Targets, true)) },
	})
	d.require(n, "values", where)
	return p
}

func (d *decoder) launchValues(n *node, where string) (values []int64) {
	list, ok := n.value.([]any)
	if !ok || len(list) == 0 {
		d.wrongType(n, "the values of "+where, "an array of integers that is not empty")
		return nil
	}
	for _, item := range n.items {
		v, ok := item.value.(int64)
		switch {
		case !ok:
			d.wrongType(item, "a value of "+where, "an integer")
			return nil
		case slices.Contains(values, v):
			d.fail(item.at, "value %d is listed twice", v)
			return nil
		}
		values = append(values, v)
	}
	return values
}

// checkCandidates limits the combinations of values, because a search measures all of them.
func (d *decoder) checkCandidates(op *Op, n *node) {
	for _, arch := range target.Known() {
		t, err := target.Parse(arch)
		if err != nil {
			continue
		}
		count := 1
		for _, p := range op.LaunchParams(t) {
			if count *= max(len(p.Values), 1); count > maxCandidates {
				d.fail(n.key, "%s has too many combinations of launch parameters on %s; expected at most %d", op.Name, arch, maxCandidates)
				return
			}
		}
	}
}

// CheckLaunchParam returns an *UnknownParamError if the operator does not have the launch parameter on the target, or if the
// parameter does not have the value.
func (o *Op) CheckLaunchParam(t target.Target, name string, value int64) error {
	e := &UnknownParamError{Op: o.Name, Target: t.String(), Name: name, Value: value}
	for _, p := range o.LaunchParams(t) {
		if e.Known = append(e.Known, p.Name); p.Name == name {
			if slices.Contains(p.Values, value) {
				return nil
			}
			e.Values = p.Values
		}
	}
	return e
}

// UnknownParamError reports a launch parameter, or a value of one, that the operator does not have on the target.
type UnknownParamError struct {
	Op, Target, Name string
	Value            int64
	Known            []string // the launch parameters on the target
	Values           []int64  // of the parameter, none if it is unknown
}

func (e *UnknownParamError) Error() string {
	switch {
	case len(e.Values) > 0:
		return fmt.Sprintf("%s: launch parameter %s is %d; expected one of %v", e.Op, e.Name, e.Value, e.Values)
	case len(e.Known) == 0:
		return fmt.Sprintf("%s has no launch parameters on %s; tune.NAME in its configuration declares one", e.Op, e.Target)
	}
	return fmt.Sprintf("%s has no launch parameter %q on %s; expected %s", e.Op, e.Name, e.Target, spelling.OneOf(e.Known))
}
