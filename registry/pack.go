package registry

import (
	"math"
	"reflect"
	"runtime"
	"strings"
	"unsafe"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// maxArgs is the number of arguments that are packed without allocation.
const maxArgs = 24

// callBuffer is reusable memory in which a call packs its arguments. counter counts the
// calls that use the buffer.
type callBuffer struct {
	packed  []ffi.Any // in args, unless there are more
	args    [maxArgs]ffi.Any
	memory  []unsafe.Pointer // texts and lists to which packed has addresses
	sizes   []int64          // of the names in the declared shapes; argChecks.sizes writes them
	counter *counter
}

// packing is the state while one call is packed.
type packing struct {
	op     *opVersion
	buffer *callBuffer
	dev    tensor.Device
	first  int // position of the first tensor, -1 if there is none yet
}

// pack checks the arguments against the schema and packs them into the buffer, with the
// defaults of those that are left out. It returns the device of the tensors, the host if
// there is none.
func (o *opVersion) pack(buffer *callBuffer, args []any) (tensor.Device, error) {
	decl := o.decl.Schema.Args
	if len(args) < o.required || len(args) > len(decl) {
		return tensor.Device{}, &ArityError{Op: o.Name(), Got: len(args), Min: o.required, Max: len(decl), Schema: o.decl.Schema.String()}
	}
	clear(buffer.memory)
	buffer.packed, buffer.memory = buffer.args[:0], buffer.memory[:0]
	p := packing{op: o, buffer: buffer, dev: tensor.Host(), first: -1}
	for i, a := range args {
		if err := p.add(i, decl[i].Type, a); err != nil {
			return p.dev, err
		}
	}
	if err := o.checks.check(o.Name(), decl, args, &buffer.sizes); err != nil {
		return p.dev, err
	}
	if given := len(args) - o.required; given < len(o.defaults.packed) {
		buffer.packed = append(buffer.packed, o.defaults.packed[given:]...)
	}
	return p.dev, nil
}

// packDefaults packs the defaults of the arguments, from the first argument that has one. It stops at
// a type that Go cannot pack: a list of other elements than integers, a device or an element type. The
// operator's code has the defaults of the remaining arguments.
func packDefaults(s schema.Schema) *callBuffer {
	buffer := new(callBuffer)
	for _, a := range s.Args[s.Required():] {
		if a.Default.IsNone() {
			buffer.packed = append(buffer.packed, ffi.None())
			continue
		}
		value, ok := buffer.scalar(a.Type.Kind, a.Default.Any())
		if !ok {
			break
		}
		buffer.packed = append(buffer.packed, value)
	}
	return buffer
}

// add packs the i-th argument.
func (p *packing) add(i int, want schema.Type, arg any) error {
	if isNone(arg) || want.Optional && want.Kind == schema.IntList && isNilList(arg) {
		if !want.Optional {
			return p.typeError(i, arg)
		}
		p.buffer.packed = append(p.buffer.packed, ffi.None())
		return nil
	}
	if want.Kind == schema.Tensor {
		return p.addTensor(i, arg)
	}
	value, ok := p.buffer.scalar(want.Kind, arg)
	if !ok || want.Len > 0 && reflect.ValueOf(arg).Len() != want.Len {
		return p.typeError(i, arg)
	}
	p.buffer.packed = append(p.buffer.packed, value)
	return nil
}

// isNone reports whether the argument is nil or a nil *tensor.Tensor.
func isNone(arg any) bool {
	t, ok := arg.(*tensor.Tensor)
	return arg == nil || ok && t == nil
}

// isNilList reports whether the argument is a nil []int64. An optional list takes it as None, another list as an empty list.
func isNilList(arg any) bool {
	list, ok := arg.([]int64)
	return ok && list == nil
}

// addTensor packs a tensor, which must be on the device of the tensors before it.
func (p *packing) addTensor(i int, arg any) error {
	t, ok := arg.(*tensor.Tensor)
	if !ok || t.Device() == (tensor.Device{}) {
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
	p.buffer.packed = append(p.buffer.packed, ffi.Tensor(t))
	return nil
}

// scalar packs a number, a bool, a text or a list of integers; ok is false for a wrong Go type or a NUL in a text.
func (c *callBuffer) scalar(kind schema.Kind, arg any) (value ffi.Any, ok bool) {
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
	case schema.Str:
		if s, isText := arg.(string); isText && !strings.Contains(s, "\x00") {
			return c.text(s), true
		}
	case schema.IntList:
		return c.intList(arg)
	}
	return value, false
}

func (c *callBuffer) text(s string) ffi.Any {
	value, memory := ffi.Str(s)
	if memory != nil {
		c.memory = append(c.memory, unsafe.Pointer(memory))
	}
	return value
}

// intList packs a list of integers.
func (c *callBuffer) intList(arg any) (value ffi.Any, ok bool) {
	list, ok := arg.([]int64)
	if !ok {
		if list, ok = integers(arg); !ok {
			return value, false
		}
	}
	value, memory := ffi.IntList(list)
	c.memory = append(c.memory, memory)
	return value, true
}

// integers returns a copy of a list of another type than []int64: []int, []int32, or []any of a default.
func integers(arg any) ([]int64, bool) {
	var list []int64
	switch from := arg.(type) {
	case []int:
		for _, n := range from {
			list = append(list, int64(n))
		}
	case []int32:
		for _, n := range from {
			list = append(list, int64(n))
		}
	case []any:
		for _, v := range from {
			n, ok := integer(v)
			if !ok {
				return nil, false
			}
			list = append(list, n)
		}
	default:
		return nil, false
	}
	return list, true
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

// keepAlive keeps the tensors, texts and lists of a call reachable until the call has returned: C
// code holds only addresses.
func keepAlive(o *opVersion, buffer *callBuffer, args []any) {
	runtime.KeepAlive(o) // has the defaults
	runtime.KeepAlive(buffer)
	runtime.KeepAlive(args)
}
