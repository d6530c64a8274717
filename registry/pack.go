package registry

import (
	"math"
	"runtime"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// maxArgs is the number of arguments that are packed without allocation.
const maxArgs = 24

// callBuffer is reusable memory in which a call packs its arguments. counter counts the
// calls that use the buffer.
type callBuffer struct {
	args    [maxArgs]ffi.Any
	counter *counter
}

// packing is the state while one call is packed.
type packing struct {
	op    *opVersion
	dst   []ffi.Any
	dev   tensor.Device
	first int // position of the first tensor, -1 if there is none yet
}

// pack checks the arguments against the schema and appends them to dst. It returns the
// device of the tensors, the host if there is none.
func (o *opVersion) pack(dst []ffi.Any, args []any) ([]ffi.Any, tensor.Device, error) {
	decl := o.decl.Schema.Args
	if len(args) < o.required || len(args) > len(decl) {
		return nil, tensor.Device{}, &ArityError{Op: o.Name(), Got: len(args), Min: o.required, Max: len(decl), Schema: o.decl.Schema.String()}
	}
	p := packing{op: o, dst: dst, dev: tensor.Host(), first: -1}
	for i, a := range args {
		if err := p.add(i, decl[i].Type, a); err != nil {
			return nil, p.dev, err
		}
	}
	return p.dst, p.dev, nil
}

// add packs the i-th argument.
func (p *packing) add(i int, want schema.Type, arg any) error {
	if isNone(arg) {
		if !want.Optional {
			return p.typeError(i, arg)
		}
		p.dst = append(p.dst, ffi.None())
		return nil
	}
	if want.Kind == schema.Tensor {
		return p.addTensor(i, arg)
	}
	value, ok := scalar(want.Kind, arg)
	if !ok {
		return p.typeError(i, arg)
	}
	p.dst = append(p.dst, value)
	return nil
}

// isNone reports whether the argument is nil or a nil *tensor.Tensor.
func isNone(arg any) bool {
	t, ok := arg.(*tensor.Tensor)
	return arg == nil || ok && t == nil
}

// addTensor packs a tensor, which must be on the device of the tensors before it.
func (p *packing) addTensor(i int, arg any) error {
	t, ok := arg.(*tensor.Tensor)
	if !ok {
		return p.typeError(i, arg)
	}
	if err := t.Check(); err != nil {
		return &TensorError{Op: p.op.Name(), Arg: p.name(i), Err: err}
	}
	switch dev := t.Device(); {
	case p.first < 0:
		p.first, p.dev = i, dev
	case dev != p.dev:
		return &MixedDevicesError{Op: p.op.Name(), Arg: p.name(i), Device: dev, First: p.name(p.first), FirstDevice: p.dev}
	}
	p.dst = append(p.dst, ffi.Tensor(t))
	return nil
}

// scalar packs a number or a bool; ok is false for a wrong Go type.
func scalar(kind schema.Kind, arg any) (value ffi.Any, ok bool) {
	switch kind {
	case schema.Bool:
		b, ok := arg.(bool)
		return ffi.Bool(b), ok
	case schema.Int:
		n, ok := integer(arg)
		return ffi.Int(n), ok
	case schema.Float:
		f, ok := float(arg)
		return ffi.Float(f), ok
	}
	return value, false
}

func integer(arg any) (int64, bool) {
	switch n := arg.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	case int32:
		return int64(n), true
	case int16:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case uint:
		return int64(n), uint64(n) <= math.MaxInt64
	case uint64:
		return int64(n), n <= math.MaxInt64
	}
	return 0, false
}

func float(arg any) (float64, bool) {
	switch f := arg.(type) {
	case float64:
		return f, true
	case float32:
		return float64(f), true
	}
	n, ok := integer(arg)
	return float64(n), ok
}

func (p *packing) name(i int) string { return p.op.decl.Schema.Args[i].Name }

func (p *packing) typeError(i int, arg any) error {
	return &TypeError{Op: p.op.Name(), Arg: p.name(i), Position: i, Expected: p.op.decl.Schema.Args[i].Type.String(), Got: arg}
}

// keepAlive keeps the tensors of a call reachable until the call has returned: C code
// holds only addresses.
func keepAlive(args []any) { runtime.KeepAlive(args) }
