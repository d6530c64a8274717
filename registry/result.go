package registry

import (
	"fmt"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/verify"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// ResultError reports that [Op.CallReturning] cannot return the result of an operator, or that [Options.Verify] found different
// results on the device and on the CPU.
type ResultError struct{ Op, Reason string }

func (e *ResultError) Error() string { return e.Op + ": result: " + e.Reason }

// returnsValue reports whether the operator's result is one int, bool or float.
func (o *opVersion) returnsValue() bool { return o.decl.Schema.Result() != schema.Invalid }

// returning makes a call that has a result. It returns the result in the Go type for the type in the schema.
func (o *opVersion) returning(call func(*ffi.Any) error) (any, error) {
	if !o.returnsValue() {
		return nil, &ResultError{Op: o.Name(), Reason: "its schema has the result " + schema.Results(o.decl.Schema.Returns) +
			", expected int, bool or float; use Call for an operator without a result"}
	}
	var result ffi.Any
	if err := call(&result); err != nil {
		return nil, err
	}
	return o.resultValue(result)
}

// resultValue returns a result in the Go type for the type in the schema.
func (o *opVersion) resultValue(r ffi.Any) (any, error) {
	kinds := map[ffi.TypeIndex]schema.Kind{ffi.TypeInt: schema.Int, ffi.TypeBool: schema.Bool, ffi.TypeFloat: schema.Float}
	v, ok := r.Value()
	if want := o.decl.Schema.Returns[0].Kind; !ok || kinds[r.Type] != want {
		reason := fmt.Sprintf("expected %s, the type in the schema, got a value of type index %d; correct the schema", want, r.Type)
		return nil, &ResultError{Op: o.Name(), Reason: reason}
	}
	return v, nil
}

// compareResults compares the results of a device and of the CPU. Floats may differ by the tolerance of their type.
func (o *opVersion) compareResults(got, want ffi.Any) error {
	if !o.returnsValue() || got == want {
		return nil
	}
	a, _ := got.Value()
	b, _ := want.Value()
	x, isFloat := a.(float64)
	y, alsoFloat := b.(float64)
	if isFloat && alsoFloat && verify.Default(tensor.Float64).Allows(x, y) {
		return nil
	}
	return &ResultError{Op: o.Name(), Reason: fmt.Sprintf("verification: %v on the device, expected %v from the CPU", a, b)}
}
