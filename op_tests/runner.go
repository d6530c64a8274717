package optests

import (
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/tensor"
)

// Device copies tensors to the device on which an operator runs. The whole storage
// is copied; the tensor keeps its strides and its offset.
type Device interface {
	// ToDevice copies a host tensor. The copy is complete when it returns.
	ToDevice(t *tensor.Tensor) (*tensor.Tensor, error)
	// ToHost waits for the work queued earlier, then copies back.
	ToHost(t *tensor.Tensor) (*tensor.Tensor, error)
	// Free frees the memory of a tensor that ToDevice returned.
	Free(t *tensor.Tensor) error
}

// Runner runs problems on one device.
type Runner struct {
	// Call runs the operator of that name; args are in the schema's order.
	Call func(op string, args []any) error
	// Device holds the tensors of Call; nil for the host.
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

// Run calls the problem's operator once and checks every output. Wrong outputs are
// in the results; the error is that of a call or a copy that failed.
func (r Runner) Run(p *Problem) ([]Result, error) {
	uploaded, err := r.Upload(p)
	if err != nil {
		return nil, err
	}
	results, err := uploaded.callAndCheck(r)
	if free := uploaded.Free(); err == nil && free != nil {
		return nil, fmt.Errorf("%s: free device memory: %w", p.Op, free)
	}
	return results, err
}

// Uploaded is a problem whose tensors were copied to the device.
type Uploaded struct {
	Problem *Problem
	// Args are the problem's arguments with the tensors on the device.
	Args []any

	device Device
	copies []*tensor.Tensor
}

// Upload copies the problem's tensors to the device. On error it frees those copied.
func (r Runner) Upload(p *Problem) (*Uploaded, error) {
	q := &Uploaded{Problem: p, device: r.Device, Args: make([]any, len(p.Args))}
	for i, a := range p.Args {
		v, err := q.uploadArg(a)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: copy argument %s to the device: %w", p.Op, p.ArgNames[i], err), q.Free())
		}
		q.Args[i] = v
	}
	return q, nil
}

func (q *Uploaded) uploadArg(arg any) (any, error) {
	t, ok := arg.(*tensor.Tensor)
	if !ok || q.device == nil {
		return arg, nil
	}
	d, err := q.device.ToDevice(t)
	if err != nil {
		return nil, err
	}
	q.copies = append(q.copies, d)
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

// Outputs copies the outputs to the host, by name.
func (q *Uploaded) Outputs() (map[string]*tensor.Tensor, error) {
	got := map[string]*tensor.Tensor{}
	for _, o := range q.Problem.Outputs {
		t := q.Args[o.Arg].(*tensor.Tensor)
		if q.device != nil {
			var err error
			if t, err = q.device.ToHost(t); err != nil {
				return nil, fmt.Errorf("%s: copy output %s to the host: %w", q.Problem.Op, o.Name, err)
			}
		}
		got[o.Name] = t
	}
	return got, nil
}

// Free frees the device's memory; the host's tensors stay valid.
func (q *Uploaded) Free() error {
	var errs []error
	for _, t := range q.copies {
		errs = append(errs, q.device.Free(t))
	}
	q.copies = nil
	return errors.Join(errs...)
}
