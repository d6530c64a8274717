//go:build linux

package optests_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// unreachable is a device that no machine has: a call that Go accepts ends there, before any build.
var unreachable = tensor.Device{Type: tensor.ROCM, ID: 99}

// TestWrongUpstreamCalls makes wrong calls of all operators that are built from AIter's sources, one mistake in each. Go refuses
// them before a build, so no compiler and no GPU is needed. The error names operator, argument, what was expected and what was given.
func TestWrongUpstreamCalls(t *testing.T) {
	checkout, err := filepath.Abs("testdata/upstream")
	if err != nil {
		t.Fatal(err)
	}
	env := func(name string) string {
		return map[string]string{settings.CheckoutVariable: checkout, "AITER_JIT_DIR": filepath.Join(t.TempDir(), "jit")}[name]
	}
	reg, err := registry.Open(t.Context(), registry.Options{Getenv: env})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	ops, calls := 0, 0
	for _, decl := range upstreamConfig(t) {
		op, err := reg.Lookup(decl.Name)
		if err != nil {
			t.Fatal(err)
		}
		right := rightArgs(t, decl, unreachable)
		err = op.Call(t.Context(), rightArgs(t, decl, tensor.Host())...)
		reason := "the tensors are on cpu; "
		if !hasTensors(decl) {
			reason = "the operator has no tensors, and the call is for cpu; name a device that the module supports with device.WithStream"
		}
		for _, word := range []string{decl.Name + ": " + reason, "does not support cpu, only "} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error of tensors on the host lacks %q: %v", decl.Name, word, err)
			}
		}
		if err := op.Call(t.Context(), right...); err == nil || refusal(err) { // the device is missing
			t.Errorf("%s: the call without a mistake was refused: %v", decl.Name, err)
		}
		list := wrongCalls(t, decl, right)
		for _, c := range list {
			err := op.Call(t.Context(), c.args...)
			if err == nil || !refusal(err) {
				t.Errorf("%s: %s: the call was not refused: %v", decl.Name, c.mistake, err)
				continue
			}
			for _, word := range append(c.words, decl.Name+": ") {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: %s: the error lacks %q: %v", decl.Name, c.mistake, word, err)
				}
			}
		}
		ops, calls = ops+1, calls+len(list)+1
	}
	if t.Logf("%d wrong calls of %d operators", calls, ops); ops < 40 || calls < 8000 {
		t.Errorf("%d wrong calls of %d operators, want 8000 or more of 40 or more", calls, ops)
	}
}

func hasTensors(decl *opconfig.Op) bool {
	return slices.ContainsFunc(decl.Schema.Args, func(a schema.Arg) bool { return a.Type.Kind == schema.Tensor })
}

// upstreamConfig returns the declarations of the operators, in order.
func upstreamConfig(t *testing.T) (list []*opconfig.Op) {
	files, err := settings.Upstream()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := opconfig.Load(files, "opt_compiler.toml", opconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range cfg.Modules {
		for i := range m.Ops {
			list = append(list, &m.Ops[i])
		}
	}
	return list
}

// refusal reports whether an error refuses an argument.
func refusal(err error) bool {
	var arity *registry.ArityError
	var kind *registry.TypeError
	var arg *registry.ArgumentError
	var mixed *registry.MixedDevicesError
	var invalid *registry.TensorError
	return errors.As(err, &arity) || errors.As(err, &kind) || errors.As(err, &arg) || errors.As(err, &mixed) || errors.As(err, &invalid)
}

// fakeTensor returns a tensor without memory: its address must not be read.
func fakeTensor(t *testing.T, dev tensor.Device, dt tensor.DType, shape, strides []int64, offset int64) *tensor.Tensor {
	x, err := tensor.View(tensor.ForeignStorage(1<<20, 1<<30, dev, nil), dt, shape, strides, offset)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func packedTensor(t *testing.T, dev tensor.Device, dt tensor.DType, shape ...int64) *tensor.Tensor {
	strides, err := tensor.RowMajor(shape)
	if err != nil {
		t.Fatal(err)
	}
	return fakeTensor(t, dev, dt, shape, strides, 0)
}

// rightArgs makes arguments on a device that the declaration of an operator allows. Sizes of different names differ.
func rightArgs(t *testing.T, decl *opconfig.Op, dev tensor.Device) (args []any) {
	sizes := map[string]int64{}
	for _, a := range decl.Schema.Args {
		switch a.Type.Kind {
		case schema.Tensor:
			var shape []int64
			if alternatives := decl.Args[a.Name].Shape.Alternatives; len(alternatives) > 0 {
				for _, d := range alternatives[0] {
					switch {
					case d.Rest:
						shape = append(shape, 2, 3)
					case d.Name == "":
						shape = append(shape, d.Offset)
					default:
						if sizes[d.Name] == 0 {
							sizes[d.Name] = int64(5 + len(sizes))
						}
						shape = append(shape, sizes[d.Name]+d.Offset)
					}
				}
			}
			args = append(args, packedTensor(t, dev, rightTypes(decl, a.Name)[0], shape...))
		case schema.Int:
			args = append(args, 1)
		case schema.Float:
			args = append(args, 1.0)
		case schema.Bool:
			args = append(args, false)
		case schema.Str:
			args = append(args, "")
		case schema.IntList:
			args = append(args, []int64{1, 2})
		default:
			t.Fatalf("%s: no value for %s", decl.Name, a.Type)
		}
	}
	return args
}

// rightTypes lists the element types that an argument may have: float32 first if any is allowed.
func rightTypes(decl *opconfig.Op, name string) (list []tensor.DType) {
	words := decl.Args[name].DTypes
	if len(words) == 0 {
		return append([]tensor.DType{tensor.Float32}, tensor.DTypes()...)
	}
	for _, word := range words {
		if dt, err := tensor.ParseDType(word); err == nil {
			list = append(list, dt)
		} else {
			list = append(list, rightTypes(decl, word)...)
		}
	}
	return list
}

// wrongCall is a call with a mistake, and the words that its error must have.
type wrongCall struct {
	mistake string
	args    []any
	words   []string
}

// wrongCalls makes the calls that Go can refuse.
func wrongCalls(t *testing.T, decl *opconfig.Op, right []any) (list []wrongCall) {
	add := func(i int, mistake string, v any, words ...string) {
		args := slices.Clone(right)
		args[i] = v
		list = append(list, wrongCall{decl.Schema.Args[i].Name + ": " + mistake, args, words})
	}
	for n := range decl.Schema.Required() {
		list = append(list, wrongCall{fmt.Sprint(n, " arguments"), right[:n], []string{"expected ", fmt.Sprint("got ", n)}})
	}
	n, other := len(right)+1, packedTensor(t, unreachable, tensor.Float32, 1)
	list = append(list, wrongCall{"one more argument", append(slices.Clone(right), 1), []string{"expected ", fmt.Sprint("got ", n)}})
	for i, a := range decl.Schema.Args {
		named := fmt.Sprintf("(%s): expected ", a.Name)
		var kinds []any
		switch a.Type.Kind {
		case schema.Int:
			kinds = []any{nil, 1.5, float32(1), "1", false, []int64{1}, uint64(math.MaxUint64), uint(1 << 63), other}
		case schema.Float:
			kinds = []any{"1", true, []float64{1}, complex(1, 0), uint64(math.MaxUint64), other}
			if !a.Type.Optional {
				kinds = append(kinds, nil)
			}
		case schema.Bool:
			kinds = []any{nil, 1, 0, 1.0, "true", []bool{true}, other}
		case schema.Str:
			kinds = []any{nil, 1, 1.5, true, []byte("softmax"), "soft\x00max", other}
		case schema.IntList:
			kinds = []any{nil, 1, "1", 1.5, true, []float64{1}, []string{"1"}, []any{"1"}, []bool{true}, other}
		case schema.Tensor:
			kinds = []any{1, 1.5, "tensor", true, []float32{1}, *packedTensor(t, unreachable, tensor.Float32, 1), uintptr(1 << 20)}
			if !a.Type.Optional {
				kinds = append(kinds, nil, (*tensor.Tensor)(nil))
			}
			wrongTensors(t, decl, right, i, add)
		}
		for _, v := range kinds {
			add(i, fmt.Sprintf("%T %v", v, v), v, named, "got ")
		}
	}
	return list
}

// wrongTensors replaces one tensor by others, each with one wrong property.
func wrongTensors(t *testing.T, decl *opconfig.Op, right []any, i int, add func(i int, mistake string, v any, words ...string)) {
	name, x := decl.Schema.Args[i].Name, right[i].(*tensor.Tensor)
	rules, shape := decl.Args[name], x.Shape()
	add(i, "no memory", new(tensor.Tensor), "("+name+"): expected Tensor", "got the zero tensor.Tensor")
	freed := tensor.ForeignStorage(1<<20, 1<<30, unreachable, nil)
	view, err := tensor.View(freed, x.DType(), shape, x.Strides(), 0)
	if err != nil {
		t.Fatal(err)
	}
	freed.MarkFreed()
	add(i, "freed", view, "argument "+name, "freed")
	for _, dev := range []tensor.Device{tensor.Host(), {Type: tensor.CUDA}, {Type: tensor.ROCM}} {
		add(i, dev.String(), packedTensor(t, dev, x.DType(), shape...), "argument ", " is on ", dev.String(), unreachable.String())
	}
	if len(rules.DTypes) > 0 {
		allowed := rightTypes(decl, name)
		for _, dt := range tensor.DTypes() {
			if !slices.Contains(allowed, dt) {
				add(i, dt.String(), packedTensor(t, unreachable, dt, shape...), "argument '"+name+"': expected dtype ", "got "+dt.String())
			}
		}
	}
	for _, size := range [][]int64{slices.Concat([]int64{2}, shape), slices.Concat(shape, []int64{4})} {
		if refusedRank(decl, name, len(size)) {
			add(i, fmt.Sprint(size), packedTensor(t, unreachable, x.DType(), size...), "argument '", ": expected shape (", "got (")
		}
	}
	for n := range len(shape) { // shorter shapes, the empty one too
		if refusedRank(decl, name, n) {
			add(i, fmt.Sprint(shape[:n]), packedTensor(t, unreachable, x.DType(), shape[:n]...), "argument '", ": expected shape (", "got (")
		}
	}
	for at := range shape {
		for _, n := range []int64{0, shape[at] - 1, shape[at] + 1, 97} {
			if n < 0 || n == shape[at] || !refusedSize(decl, name, at) {
				continue
			}
			size := slices.Clone(shape)
			size[at] = n
			add(i, fmt.Sprint(size), packedTensor(t, unreachable, x.DType(), size...), "argument '", ": expected shape (", "got (")
		}
	}
	if !rules.RowMajor {
		return
	}
	for at, n := range shape {
		for _, factor := range []int64{2, 0, -1} { // a gap between elements or rows, one address for all, the other direction
			strides, offset := x.Strides(), int64(0)
			if strides[at] *= factor; n < 2 {
				continue
			} else if factor < 0 {
				offset = -strides[at] * (n - 1)
			}
			other := fakeTensor(t, unreachable, x.DType(), shape, strides, offset)
			add(i, fmt.Sprint("strides ", strides), other, "argument '"+name+"': expected strides ", "got [")
		}
	}
}

// refusedRank reports whether the declaration refuses a tensor of another rank than the right one.
func refusedRank(decl *opconfig.Op, name string, rank int) bool {
	for _, dims := range decl.Args[name].Shape.Alternatives {
		if len(dims) == rank || dims[0].Rest {
			return dims[0].Rest && len(others(decl, name, schema.Dim{Rest: true})) > 0
		}
	}
	return len(decl.Args[name].Shape.Alternatives) > 0
}

// refusedSize reports whether the declaration determines the size of a dimension: the tensor has one declared shape, and the size is
// a constant there, or another argument has a size of the same name.
func refusedSize(decl *opconfig.Op, name string, at int) bool {
	alternatives := decl.Args[name].Shape.Alternatives
	if len(alternatives) != 1 {
		return false
	}
	dims := alternatives[0]
	if dims[0].Rest {
		if at < 2 {
			return len(others(decl, name, dims[0])) > 0
		}
		at--
	}
	return dims[at].Name == "" || len(others(decl, name, dims[at])) > 0
}

// others lists the other arguments that have a dimension of the same name.
func others(decl *opconfig.Op, name string, d schema.Dim) (list []string) {
	for other, rules := range decl.Args {
		if other == name || len(rules.Shape.Alternatives) != 1 {
			continue
		}
		if slices.ContainsFunc(rules.Shape.Alternatives[0], func(o schema.Dim) bool { return o.Rest == d.Rest && o.Name == d.Name }) {
			list = append(list, other)
		}
	}
	return list
}
