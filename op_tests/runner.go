package optests

import (
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/tensor"
)

// Device moves tensors to where an operator runs. A moved tensor keeps its
// strides and its place in its storage, and the whole storage moves with it.
type Device interface {
	// ToDevice copies a host tensor. The copy is complete when it returns.
	ToDevice(t *tensor.Tensor) (*tensor.Tensor, error)
	// ToHost waits for the work queued before it, then copies back.
	ToHost(t *tensor.Tensor) (*tensor.Tensor, error)
	// Free gives a moved tensor's memory back.
	Free(t *tensor.Tensor) error
}

// Runner tries problems on one target.
type Runner struct {
	// Call runs the operator of that name; args are in the schema's order.
	Call func(op string, args []any) error
	// Device is where Call expects its tensors; nil for the host.
	Device Device
}

// RunCase generates the case and runs it.
func (r Runner) RunCase(op string, c Case) ([]Result, error) {
	p, err := Generate(op, c)
	if err != nil {
		return nil, err
	}
	return r.Run(p)
}

// Run calls the problem's operator once and checks every output. The error says
// what kept it from that; outputs that are wrong are in the results.
func (r Runner) Run(p *Problem) ([]Result, error) {
	placed, err := r.Upload(p)
	if err != nil {
		return nil, err
	}
	results, err := placed.callAndCheck(r)
	if free := placed.Free(); err == nil && free != nil {
		return nil, fmt.Errorf("%s: free device memory: %w", p.Op, free)
	}
	return results, err
}

// Uploaded is a problem whose tensors are where the operator runs.
type Uploaded struct {
	Problem *Problem
	// Args are the problem's, with moved tensors.
	Args []any

	device Device
	moved  []*tensor.Tensor
}

// Upload moves the problem's tensors to the device. On error nothing stays there.
func (r Runner) Upload(p *Problem) (*Uploaded, error) {
	q := &Uploaded{Problem: p, device: r.Device, Args: make([]any, len(p.Args))}
	for i, a := range p.Args {
		v, err := q.moveArg(a)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: move argument %s: %w", p.Op, p.ArgNames[i], err), q.Free())
		}
		q.Args[i] = v
	}
	return q, nil
}

func (q *Uploaded) moveArg(arg any) (any, error) {
	t, ok := arg.(*tensor.Tensor)
	if !ok || q.device == nil {
		return arg, nil
	}
	d, err := q.device.ToDevice(t)
	if err != nil {
		return nil, err
	}
	q.moved = append(q.moved, d)
	return d, nil
}

func (q *Uploaded) callAndCheck(r Runner) ([]Result, error) {
	if err := r.Call(q.Problem.Op, q.Args); err != nil {
		return nil, err
	}
	got, err := q.Outputs()
	if err != nil {
		return nil, err
	}
	return q.Problem.Check(got)
}

// Outputs brings the outputs back to the host, by name.
func (q *Uploaded) Outputs() (map[string]*tensor.Tensor, error) {
	got := map[string]*tensor.Tensor{}
	for _, o := range q.Problem.Outputs {
		t := q.Args[o.Arg].(*tensor.Tensor)
		if q.device != nil {
			var err error
			if t, err = q.device.ToHost(t); err != nil {
				return nil, fmt.Errorf("%s: fetch output %s: %w", q.Problem.Op, o.Name, err)
			}
		}
		got[o.Name] = t
	}
	return got, nil
}

// Free gives the device's memory back; the host's tensors stay.
func (q *Uploaded) Free() error {
	var errs []error
	for _, t := range q.moved {
		errs = append(errs, q.device.Free(t))
	}
	q.moved = nil
	return errors.Join(errs...)
}
