package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/perf"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// tuner searches launch parameters of an operator on a device.
type tuner struct {
	*opSession
	declared []registry.LaunchParam
	read     map[string]bool // the parameters that some case reads
	dryRun   bool
}

// candidate is a combination of launch parameters. Without parameters it is the operator's launch plan.
type candidate struct {
	params map[string]int64
	op     *registry.Op
}

// tune searches the launch parameters for a case, and keeps them.
func (t *tuner) tune(ctx context.Context, c optests.Config) (one tunedCase, err error) {
	one = tunedCase{Case: c.Name, Wrong: []wrongCandidate{}}
	if one.Case == "-" || one.Case == "" {
		one.Case = c.Case.String()
	}
	p, err := t.decl.GenerateForTiming(c.Case)
	if err != nil {
		return one, err
	}
	placed, err := t.runner(ctx).Upload(p)
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, placed.Free()) }()
	names, err := t.op.ReadParams(ctx, placed.Args...)
	if err = errors.Join(err, t.driver.Synchronize(device.Stream{Device: t.device})); err != nil || len(names) == 0 {
		return one, err
	}
	list, err := t.candidates(names)
	if err != nil {
		return one, err
	}
	one.Candidates = len(list) - 1
	if list, one.Wrong, err = t.verify(ctx, c.Case, list); err != nil {
		return one, err
	}
	var calls []perf.Call
	for _, k := range list {
		calls = append(calls, func(ctx context.Context, args []any) error { return k.op.Call(ctx, args...) })
	}
	r, err := t.meter.Race(ctx, t.decl, c.Case, calls)
	if err != nil {
		return one, err
	}
	one.Params, one.Rounds = list[r.Best].params, r.Rounds
	one.PlanUS, one.TunedUS = float64(r.Plan.Nanoseconds())/1e3, float64(r.Chosen.Nanoseconds())/1e3
	chosen := registry.TunedParams{Params: one.Params, PlanUS: one.PlanUS, TunedUS: one.TunedUS, Rounds: one.Rounds}
	keep := t.op.KeepTuning
	if t.dryRun {
		keep = t.op.DescribeTuning
	}
	kept, err := keep(ctx, chosen, placed.Args...)
	one.Shapes = kept.Shapes
	return one, err
}

// candidates returns the launch plan, then all combinations of the values of the named parameters.
func (t *tuner) candidates(names []string) ([]candidate, error) {
	if t.read == nil {
		t.read = map[string]bool{}
	}
	combinations := []map[string]int64{{}}
	for _, p := range t.declared {
		if !slices.Contains(names, p.Name) {
			continue
		}
		t.read[p.Name] = true
		var next []map[string]int64
		for _, c := range combinations {
			for _, v := range p.Values {
				with := maps.Clone(c)
				with[p.Name] = v
				next = append(next, with)
			}
		}
		combinations = next
	}
	list := []candidate{{op: t.op}}
	for _, params := range combinations {
		op, err := t.op.WithParams(t.device, params)
		if err != nil {
			return nil, err
		}
		list = append(list, candidate{params, op})
	}
	return list, nil
}

// unread lists the parameters that no case has read.
func (t *tuner) unread() []string {
	names := []string{}
	for _, p := range t.declared {
		if !t.read[p.Name] {
			names = append(names, p.Name)
		}
	}
	return names
}

// verify compares the results of the candidates with the float64 reference. It returns those with right and those with wrong results.
// Wrong results of the plan are an error.
func (t *tuner) verify(ctx context.Context, c optests.Case, list []candidate) (right []candidate, wrong []wrongCandidate, err error) {
	wrong = []wrongCandidate{}
	p, err := t.decl.Generate(c)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range list {
		fault, err := t.fault(ctx, p, k)
		switch {
		case err != nil:
			return nil, nil, err
		case fault != "" && len(k.params) == 0:
			return nil, nil, &verifyError{fmt.Sprintf("%s: wrong results without launch parameters: %s", t.decl.Name(), fault)}
		case fault != "":
			wrong = append(wrong, wrongCandidate{k.params, fault})
		default:
			right = append(right, k)
		}
	}
	return right, wrong, nil
}

// fault describes the wrong results of a candidate, "" for none. Each candidate gets copies of the same tensors, also on the host.
func (t *tuner) fault(ctx context.Context, p *optests.Problem, k candidate) (string, error) {
	r := optests.Runner{Device: optests.Transfer(t.reg.Devices(), t.device), Call: func(_ string, args []any) error {
		return k.op.Call(ctx, args...)
	}}
	if r.Device == nil {
		r.Device = hostCopies{}
	}
	results, err := r.Run(p)
	var refused *registry.OperatorError
	if errors.As(err, &refused) && len(k.params) > 0 {
		return refused.Error(), nil
	}
	if err != nil {
		return "", err
	}
	var faults []string
	for _, r := range results {
		if !r.OK() {
			faults = append(faults, r.String())
		}
	}
	return strings.Join(faults, "; "), nil
}

// hostCopies copies tensors within host memory.
type hostCopies struct{}

func (hostCopies) ToDevice(t *tensor.Tensor) (*tensor.Tensor, error) {
	from, err := t.Storage().Bytes()
	if err != nil {
		return nil, err
	}
	s, err := tensor.HostStorage(t.Storage().Size())
	if err != nil {
		return nil, err
	}
	to, err := s.Bytes()
	if err != nil {
		return nil, err
	}
	copy(to, from)
	return tensor.View(s, t.DType(), t.Shape(), t.Strides(), t.Offset())
}

func (hostCopies) ToHost(t *tensor.Tensor) (*tensor.Tensor, error) { return t, nil }

func (hostCopies) Free(*tensor.Tensor) error { return nil }
