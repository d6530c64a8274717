//go:build linux

package optests_test

import (
	"syscall"
	"testing"
	"unsafe"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// offsetBeyond32Bits is an element offset beyond the range of 32-bit integers, signed or not.
const offsetBeyond32Bits = 1<<32 + 5

// largePitch is a multiple of a vector; 16 times it exceeds the range of a 32-bit integer.
const largePitch = 9 << 25

// TestLargeStrides tests offsets of more than 2^31 elements along each dimension, for the kernels
// that take any strides and for forward's vectorized ones, which need weights of x's type and
// count elements or vectors up to 2^32. On the host the memory between the elements is never
// touched and takes no space.
func TestLargeStrides(t *testing.T) {
	if *deviceFlag != "cpu" && !*largeStridesFlag {
		t.Skip("a GPU needs tens of gigabytes of physical memory for it: run it with -large-strides")
	}
	target := open(t)
	for _, test := range []struct {
		name           string
		weight         tensor.DType
		width          int64
		shape, strides []int64
	}{
		{"batch", tensor.Float32, 3, []int64{2, 2, 2}, []int64{offsetBeyond32Bits, 9, 1}},
		{"dim", tensor.Float32, 3, []int64{2, 2, 2}, []int64{20, offsetBeyond32Bits, 1}},
		{"seqlen", tensor.Float32, 3, []int64{2, 2, 2}, []int64{3, 1, offsetBeyond32Bits}},
		{"whole rows", tensor.Float32, 3, []int64{2, 2, 8}, []int64{offsetBeyond32Bits + 3, 8, 1}},
		{"narrow vectorized rows", tensor.Float16, 3, []int64{2, 2, 8}, []int64{offsetBeyond32Bits + 3, 8, 1}},
		{"vectorized rows", tensor.Float16, 4, []int64{2, 2, 8}, []int64{8, offsetBeyond32Bits + 3, 1}},
		{"wide vectorized rows", tensor.Float16, 6, []int64{2, 2, 8}, []int64{offsetBeyond32Bits + 3, 8, 1}},
		{"narrow strips", tensor.Float16, 3, []int64{2, 8, 16}, []int64{offsetBeyond32Bits + 3, 1, 8}},
		{"narrow strips of positions", tensor.Float16, 3, []int64{1, 8, 24}, []int64{0, 1, largePitch}},
		{"strips", tensor.Float16, 4, []int64{2, 8, 16}, []int64{offsetBeyond32Bits + 3, 1, 8}},
		{"strips of positions", tensor.Float16, 4, []int64{1, 8, 24}, []int64{0, 1, largePitch}},
		{"pairs", tensor.Float16, 6, []int64{2, 4, 16}, []int64{offsetBeyond32Bits + 3, 1, 4}},
		{"pairs at a uniform offset", tensor.Float16, 5, []int64{2, 3, 16}, []int64{offsetBeyond32Bits - 6, 1, 4}},
		{"pairs at alternating offsets", tensor.Float16, 4, []int64{2, 3, 16}, []int64{offsetBeyond32Bits - 6, 1, 3}},
		{"pairs of positions at alternating offsets", tensor.Float16, 7, []int64{1, 3, 24}, []int64{0, 1, largePitch + 1}},
		{"too far for pairs", tensor.Float16, 4, []int64{2, 3, 16}, []int64{offsetBeyond32Bits, 1, 3}},
	} {
		for op, activations := range map[string][]string{"causal_conv1d_fwd": {"out", "x"}, "causal_conv1d_bwd": {"dx", "x", "dout"}} {
			t.Run(test.name+"/"+op, func(t *testing.T) {
				given := map[string]any{"use_silu": true, "weight": newSparseTensor(t, test.weight, []int64{test.shape[1], test.width}, nil)}
				for _, arg := range activations {
					given[arg] = newSparseTensor(t, tensor.Float16, test.shape, test.strides)
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

// newSparseTensor makes a tensor of the repeated values 0.5, 0.75, 1, ... 6. Its storage may be
// huge: only the pages of its elements take memory.
func newSparseTensor(t *testing.T, dt tensor.DType, shape, strides []int64) *tensor.Tensor {
	t.Helper()
	size := int64(4096)
	for i, s := range strides {
		size += (shape[i] - 1) * s * dt.Size()
	}
	mem, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
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
