package registry

import (
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/verify"
	"github.com/aiter-go/aiter/tensor"
)

// Reference computes in float64 what an operator writes. [Options.References] has those with which [Options.Verify] compares calls.
// [optests.Operator.Verification] makes one of a declared operator.
//
// [optests.Operator.Verification]: https://pkg.go.dev/github.com/aiter-go/aiter/op_tests#Operator.Verification
type Reference struct {
	// Compute returns the elements of the tensors that a call writes, row-major, by the argument's name. A tensor that is not in the
	// result is not compared. args has all arguments of the schema by name, with defaults for those that the call left out. Tensors are
	// copies in host memory from before the call. An error or a panic makes the call fail with an *UnverifiedError.
	Compute func(args map[string]any) (map[string][]float64, error)
	// Tolerance returns the largest error of an element, abs + rel * |expected|, of an argument with elements of a type. nil: the
	// tolerance of the operator in the configuration, else that of the element type.
	Tolerance func(arg string, dt tensor.DType) (rel, abs float64)
}

func (r *Registry) hasReference(op string) bool {
	_, ok := r.references[op]
	return ok
}

// compute calls Compute. A panic is an error: a reference may use values in the memory of the device as indices, such as positions, and
// operators do not check them.
func (r Reference) compute(args map[string]any) (want map[string][]float64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the reference failed: %v", p)
		}
	}()
	if r.Compute == nil {
		return nil, errors.New("Options.References has a Reference without Compute")
	}
	return r.Compute(args)
}

// compareWithReference compares what a call wrote with the reference. before has copies of the tensors from before the call.
func (o *opVersion) compareWithReference(ref Reference, queue device.Stream, args []any, before []*tensor.Tensor) error {
	got, err := o.snapshot(queue, o.writtenTensors(tensorsOf(args)))
	if err != nil {
		return &UnverifiedError{Op: o.Name(), Called: true, Err: err}
	}
	want, err := ref.compute(o.named(replaceTensors(args, before)))
	if err != nil {
		return &UnverifiedError{Op: o.Name(), Called: true, Err: err}
	}
	return o.compareEach(queue.Device, true, got, func(i int, arg string, g *tensor.Tensor) (*verify.Difference, verify.Tolerance, error) {
		values, ok := want[arg]
		if !ok {
			return nil, verify.Tolerance{}, nil
		}
		tol := o.tolerance(arg, g.DType())
		if ref.Tolerance != nil {
			tol.Rel, tol.Abs = ref.Tolerance(arg, g.DType())
		}
		d, err := verify.CompareValues(g, values, tol)
		return d, tol, err
	})
}

// named returns the arguments of a call by their names in the schema.
func (o *opVersion) named(args []any) map[string]any {
	list := map[string]any{}
	for i, a := range o.decl.Schema.Args {
		switch {
		case i < len(args):
			list[a.Name] = args[i]
		case a.Default != nil:
			list[a.Name] = a.Default.Any()
		}
	}
	return list
}

// compareEach compares each written tensor. The error joins one *VerifyError for each that differs.
func (o *opVersion) compareEach(
	dev tensor.Device, reference bool, got []*tensor.Tensor,
	compare func(i int, arg string, g *tensor.Tensor) (*verify.Difference, verify.Tolerance, error),
) error {
	var errs []error
	for i, g := range got {
		if g == nil {
			continue
		}
		arg := o.decl.Schema.Args[i].Name
		d, tol, err := compare(i, arg, g)
		if err != nil {
			errs = append(errs, &UnverifiedError{Op: o.Name(), Called: true, Err: &TensorError{Op: o.Name(), Arg: arg, Err: err}})
		} else if d != nil {
			errs = append(errs, &VerifyError{Op: o.Name(), Arg: arg, Device: dev, Reference: reference, Difference: *d, Tolerance: tol})
		}
	}
	return errors.Join(errs...)
}
