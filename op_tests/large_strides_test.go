package optests_test

import (
	"syscall"
	"testing"
	"unsafe"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// offsetBeyond32Bits is an element offset that no 32-bit number holds, signed or not.
const offsetBeyond32Bits = 1<<32 + 5

// largePitch is whole vectors, of which 16 are more elements than a 32-bit number holds.
const largePitch = 9 << 25

// Offsets of more than 2^31 elements, along each dimension in turn, for kernels that take any strides and for forward's plain
// ones, which are for weights in x's type: they count in elements or in vectors of them, up to 2^32. On the host the memory
// between the elements is never touched, so it costs nothing.
func TestLargeStrides(t *testing.T) {
	if *deviceFlag != "cpu" && !*largeStridesFlag {
		t.Skip("on a GPU this takes tens of gigabytes of memory that is really there: ask for it with -large-strides")
	}
	target := open(t)
	for _, far := range []struct {
		name           string
		weight         tensor.DType
		width          int64
		shape, strides []int64
	}{
		{"batch", tensor.Float32, 3, []int64{2, 2, 2}, []int64{offsetBeyond32Bits, 9, 1}},
		{"dim", tensor.Float32, 3, []int64{2, 2, 2}, []int64{20, offsetBeyond32Bits, 1}},
		{"seqlen", tensor.Float32, 3, []int64{2, 2, 2}, []int64{3, 1, offsetBeyond32Bits}},
		{"whole rows", tensor.Float32, 3, []int64{2, 2, 8}, []int64{offsetBeyond32Bits + 3, 8, 1}},
		{"narrow plain rows", tensor.Float16, 3, []int64{2, 2, 8}, []int64{offsetBeyond32Bits + 3, 8, 1}},
		{"plain rows", tensor.Float16, 4, []int64{2, 2, 8}, []int64{8, offsetBeyond32Bits + 3, 1}},
		{"wide plain rows", tensor.Float16, 6, []int64{2, 2, 8}, []int64{offsetBeyond32Bits + 3, 8, 1}},
		{"narrow strips", tensor.Float16, 3, []int64{2, 8, 16}, []int64{offsetBeyond32Bits + 3, 1, 8}},
		{"narrow strips of positions", tensor.Float16, 3, []int64{1, 8, 24}, []int64{0, 1, largePitch}},
		{"strips", tensor.Float16, 4, []int64{2, 8, 16}, []int64{offsetBeyond32Bits + 3, 1, 8}},
		{"strips of positions", tensor.Float16, 4, []int64{1, 8, 24}, []int64{0, 1, largePitch}},
		{"pairs", tensor.Float16, 6, []int64{2, 4, 16}, []int64{offsetBeyond32Bits + 3, 1, 4}},
		{"level pairs", tensor.Float16, 5, []int64{2, 3, 16}, []int64{offsetBeyond32Bits - 6, 1, 4}},
		{"turning pairs", tensor.Float16, 4, []int64{2, 3, 16}, []int64{offsetBeyond32Bits - 6, 1, 3}},
		{"turning pairs of positions", tensor.Float16, 7, []int64{1, 3, 24}, []int64{0, 1, largePitch + 1}},
		{"too far for pairs", tensor.Float16, 4, []int64{2, 3, 16}, []int64{offsetBeyond32Bits, 1, 3}},
	} {
		for op, streams := range map[string][]string{"causal_conv1d_fwd": {"out", "x"}, "causal_conv1d_bwd": {"dx", "x", "dout"}} {
			t.Run(far.name+"/"+op, func(t *testing.T) {
				given := map[string]any{"use_silu": true, "weight": newSparseTensor(t, far.weight, []int64{far.shape[1], far.width}, nil)}
				for _, arg := range streams {
					given[arg] = newSparseTensor(t, tensor.Float16, far.shape, far.strides)
				}
				p, err := optests.FromTensors(op, given)
				if err != nil {
					t.Fatal(err)
				}
				if results, err := target.runner.Run(p); err != nil || !optests.Passed(results) {
					t.Errorf("%v %v", results, err)
				}
			})
		}
	}
}

// newSparseTensor makes a tensor of 0.5, 0.75, 1, ... 6, and again, whose storage may be huge:
// only the pages of its elements exist.
func newSparseTensor(t *testing.T, dt tensor.DType, shape, strides []int64) *tensor.Tensor {
	t.Helper()
	size := int64(4096)
	for i, s := range strides {
		size += (shape[i] - 1) * s * dt.Size()
	}
	mem, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		t.Skipf("cannot reserve %d bytes: %v", size, err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(mem) })
	s := tensor.ForeignStorage(uintptr(unsafe.Pointer(&mem[0])), size, tensor.Host(), mem)
	v, err := tensor.View(s, dt, shape, strides, 0)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float64, v.Numel())
	for i := range values {
		values[i] = 0.5 + 0.25*float64(i%23)
	}
	if err := v.SetFloat64s(values); err != nil {
		t.Fatal(err)
	}
	return v
}
