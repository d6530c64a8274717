package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Warm builds and loads the code of the named operators for calls on a device, in parallel. For the zero Device it builds for all
// GPUs of this machine, or for the CPU if the machine has no GPU.
//
// A name such as "causal_conv1d_fwd" stands for the operator's whole module, which has the code for all calls of all its operators.
// With values of the module's axes, as in "causal_conv1d_fwd dtype=bfloat16,width=4", it stands for the parts that calls of the
// operator with these values need. They take less time to build. A size stands for its range. An axis may have several values, as in
// "dtype=float16,dtype=bfloat16"; an axis without a value has all its values. Without names Warm builds the modules of all operators.
//
// The error joins all failures, among them [*UnknownOpError], [*UnknownAxisError], [*BuildError] and [*LoadError]. To build for
// targets that this machine does not have, call [jit.Manager.Build].
func (r *Registry) Warm(ctx context.Context, dev tensor.Device, names ...string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if r.calls.closed.Load() {
		return ErrClosed
	}
	list, err := r.selections(names)
	if err != nil {
		return err
	}
	native, err := r.native(ctx)
	if err != nil {
		return err
	}
	targets, err := r.targetsOf(dev, native)
	if err != nil {
		return err
	}
	reqs, err := requestsOf(list, targets)
	if err != nil {
		return err
	}
	if host := target.Host(); r.verify && !slices.Contains(targets, host) {
		verified := slices.DeleteFunc(slices.Clone(list), func(s selection) bool { return r.hasReference(s.op.Name()) })
		onHost, err := requestsOf(verified, []target.Target{host})
		if err != nil {
			return err
		}
		reqs = append(reqs, onHost...)
	}
	return r.warm(ctx, reqs, native)
}

// UnknownAxisError reports an axis or a value that the operator's module does not have. It lists the nearest known ones.
type UnknownAxisError = opconfig.UnknownAxisError

// selection is a parsed name of [Registry.Warm]. Without values it stands for the whole module of the operator.
type selection struct {
	op     *opVersion
	values map[string][]string // by axis; nil: the name has none
}

// parseSelection parses a name of [Registry.Warm]. It returns the name of the operator and its values by axis, nil if the name has none.
func parseSelection(name string) (op string, values map[string][]string, err error) {
	op, list, selects := strings.Cut(name, " ")
	if !selects {
		return op, nil, nil
	}
	values = map[string][]string{}
	for pair := range strings.SplitSeq(list, ",") {
		axis, value, ok := strings.Cut(pair, "=")
		if !ok || axis == "" || value == "" {
			return "", nil, fmt.Errorf("%q: %q: expected AXIS=VALUE, such as \"causal_conv1d_fwd dtype=float16,width=4\"", name, pair)
		}
		values[axis] = append(values[axis], value)
	}
	return op, values, nil
}

// selections parses names and looks up their operators. Without names it returns all operators.
func (r *Registry) selections(names []string) ([]selection, error) {
	if len(names) == 0 {
		for _, op := range r.Ops() {
			names = append(names, op.Name())
		}
	}
	var list []selection
	for _, name := range names {
		name, values, err := parseSelection(name)
		if err != nil {
			return nil, err
		}
		op, err := r.Lookup(name)
		if err != nil {
			return nil, err
		}
		list = append(list, selection{op.current(), values})
	}
	return list, nil
}

// requests returns the requests for the whole module, or for the parts, that the selection stands for.
func (s selection) requests(t target.Target) ([]jit.Request, error) {
	whole := s.op.whole(t)
	if s.values == nil {
		return []jit.Request{whole}, nil
	}
	parts, err := s.op.module.decl.Parts(t, opconfig.Selection{Ops: []string{s.op.Name()}, Values: s.values})
	var reqs []jit.Request
	for _, p := range parts {
		reqs = append(reqs, jit.Request{Module: whole.Module, Target: t, Part: p})
	}
	return reqs, err
}

// requestsOf returns the requests of all selections, each once. It leaves out parts of modules that are requested whole.
func requestsOf(list []selection, targets []target.Target) ([]jit.Request, error) {
	var reqs []jit.Request
	for _, s := range list {
		for _, t := range targets {
			some, err := s.requests(t)
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
	all := slices.Clone(reqs)
	return slices.DeleteFunc(reqs, func(q jit.Request) bool {
		return !q.Part.Whole() && slices.Contains(all, jit.Request{Module: q.Module, Target: q.Target})
	}), nil
}

// warm builds the requests and the support library, which all calls need. It loads the modules that this machine runs.
func (r *Registry) warm(ctx context.Context, reqs []jit.Request, native []target.Target) error {
	gen := r.current.Load()
	support := settings.SupportRequest()
	results, err := gen.manager.Build(ctx, append(reqs, support)...)
	var errs []error
	if err != nil {
		errs = append(errs, &BuildError{Request: firstFailed(results), Err: err})
	}
	for _, res := range results {
		switch {
		case res.Err != nil:
		case res.Request == support || !runsHere(res.Target, native):
			r.ready.Store(res.Request, struct{}{})
		default:
			_, err := gen.modules[res.Module].load(ctx, r, res.Request) // load marks it as ready
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func runsHere(t target.Target, native []target.Target) bool {
	return t.Vendor() == target.CPU || slices.ContainsFunc(native, t.Runs)
}

// Ready reports whether this process has built and loaded all code that calls of the named operators on a device need, so that
// no call compiles. Names are those of [Registry.Warm]: a name with values of axes stands for calls with these values. Without
// names Ready reports this for all operators. The zero Device stands for the same devices as in Warm. Warm builds all of this
// code; a call builds only the part that it needs. With [Options.Verify] the code for the CPU of operators without a reference
// must be ready too. Ready returns false for an unknown operator or value, and for a device that neither Warm nor a call has
// used. It never blocks and reads no file.
func (r *Registry) Ready(dev tensor.Device, names ...string) bool {
	if r.calls.closed.Load() {
		return false
	}
	if _, ok := r.ready.Load(settings.SupportRequest()); !ok {
		return false
	}
	targets := r.knownTargets(dev)
	gen := r.current.Load()
	if len(names) == 0 {
		names = slices.DeleteFunc(slices.Collect(maps.Keys(gen.ops)), func(name string) bool { return gen.op(name) == nil })
	}
	for _, name := range names {
		name, values, err := parseSelection(name)
		op := gen.op(name)
		if err != nil || op == nil {
			return false
		}
		s := selection{gen.versions[op.index], values}
		if slices.ContainsFunc(targets, func(t target.Target) bool { return !r.isReady(s, t) }) {
			return false
		}
		if r.verify && !r.hasReference(name) && !r.isReady(s, target.Host()) {
			return false
		}
	}
	return len(targets) > 0
}

// isReady reports whether the operator's module was built, or each part that the selected calls
// of the operator may need.
func (r *Registry) isReady(s selection, t target.Target) bool {
	if _, ok := r.ready.Load(s.op.whole(t)); ok {
		return true
	}
	if s.values == nil {
		s.values = map[string][]string{} // all parts of the operator
	}
	reqs, err := s.requests(t)
	return err == nil && len(reqs) > 0 && !slices.ContainsFunc(reqs, func(req jit.Request) bool {
		_, ok := r.ready.Load(req)
		return !ok
	})
}
