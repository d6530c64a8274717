package tensor_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/tensor/npy"
)

// A size that no machine has is an error; Go would panic or end the process.
func TestMoreThanTheMachineHas(t *testing.T) {
	one, err := tensor.HostStorage(4)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{1 << 45, 1 << 47, 1 << 48, 1 << 58} {
		broadcast, err := tensor.View(one, tensor.Float32, []int64{n}, []int64{0}, 0)
		if err != nil {
			t.Fatal(err)
		}
		header := fmt.Appendf([]byte("\x93NUMPY\x01\x00\x60\x00"), "%-95s\n",
			fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }", n))
		for what, do := range map[string]func() error{
			"HostStorage": func() error { _, err := tensor.HostStorage(n); return err },
			"New":         func() error { _, err := tensor.New(tensor.Float32, n/4); return err },
			"Float64s":    func() error { _, err := broadcast.Float64s(); return err },
			"Compact":     func() error { _, err := broadcast.Compact(); return err },
			"npy.Write":   func() error { return npy.Write(&bytes.Buffer{}, broadcast) },
		} {
			var big *tensor.MemoryError
			if err := do(); !errors.As(err, &big) || big.Size < n || big.Memory <= 0 || big.Memory >= big.Size {
				t.Errorf("%s of %d: got %v, want a MemoryError", what, n, err)
			}
		}
		if _, err := npy.Read(bytes.NewReader(header)); err == nil {
			t.Errorf("npy.Read of %d elements gave no error", n)
		}
	}
}

// Memory beyond the last address is cut off; a view of it is an error.
func TestForeignMemoryThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		ptr  uintptr
		size int64
		want int64
	}{
		{0, 16, 0},
		{0, 0, 0},
		{^uintptr(0) - 10, 1 << 20, 11},
		{^uintptr(0), 2, 1},
	} {
		for _, dev := range []tensor.Device{tensor.Host(), {Type: tensor.CUDA}} {
			s := tensor.ForeignStorage(c.ptr, c.size, dev, nil)
			if s.Size() != c.want {
				t.Errorf("%d bytes at %#x on %s: %d bytes, want %d", c.size, c.ptr, dev, s.Size(), c.want)
			}
			var bounds *tensor.BoundsError
			if _, err := tensor.View(s, tensor.Float32, []int64{4}, nil, 0); !errors.As(err, &bounds) {
				t.Errorf("a view of %d bytes at %#x on %s: got %v, want a BoundsError", c.size, c.ptr, dev, err)
			}
			if _, err := s.Bytes(); (err == nil) != dev.IsHost() {
				t.Errorf("bytes of %d bytes at %#x on %s: %v", c.size, c.ptr, dev, err)
			}
		}
	}
}
