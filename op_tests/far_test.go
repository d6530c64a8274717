package optests_test

import (
	"syscall"
	"testing"
	"unsafe"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// beyond32 is an element offset that no 32-bit number holds, signed or not.
const beyond32 = 1<<32 + 5

// Offsets of more than 2^31 elements, along each dimension in turn. On the host
// the memory between the elements is never touched, so it costs nothing.
func TestFarStrides(t *testing.T) {
	if *deviceFlag != "cpu" && !*farFlag {
		t.Skip("on a GPU this takes tens of gigabytes of memory that is really there: ask for it with -far")
	}
	target := open(t)
	for name, far := range map[string]struct{ shape, strides []int64 }{
		"batch": {[]int64{2, 2, 2}, []int64{beyond32, 9, 1}}, "dim": {[]int64{2, 2, 2}, []int64{20, beyond32, 1}},
		"seqlen": {[]int64{2, 2, 2}, []int64{3, 1, beyond32}}, "whole rows": {[]int64{2, 2, 8}, []int64{beyond32 + 3, 8, 1}},
	} {
		shape, strides := far.shape, far.strides
		for op, outputs := range map[string][]string{"causal_conv1d_fwd": {"out"}, "causal_conv1d_bwd": {"dx"}} {
			given := map[string]any{"use_silu": true, "weight": filled(t, tensor.Float32, []int64{2, 3}, nil)}
			for _, arg := range append(outputs, "x", "dout") {
				if arg != "dout" || op == "causal_conv1d_bwd" {
					given[arg] = filled(t, tensor.Float16, shape, strides)
				}
			}
			p, err := optests.FromTensors(op, given)
			if err != nil {
				t.Fatal(err)
			}
			if results, err := target.runner.Run(p); err != nil || !optests.Passed(results) {
				t.Errorf("%s, %s: %v %v", op, name, results, err)
			}
		}
	}
}

// filled makes a tensor of 0.5, 0.75, 1, ... whose storage may be huge: only the
// pages of its elements exist.
func filled(t *testing.T, dt tensor.DType, shape, strides []int64) *tensor.Tensor {
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
		values[i] = 0.5 + 0.25*float64(i)
	}
	if err := v.SetFloat64s(values); err != nil {
		t.Fatal(err)
	}
	return v
}
