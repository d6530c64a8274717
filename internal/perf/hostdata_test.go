//go:build linux

package perf_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/perf"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// The naive sequence calls the operator with tensors on the device, pipelined calls with tensors on the host. Outputs are not uploaded.
func TestMeasureHost(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on PATH")
	}
	lib := filepath.Join(t.TempDir(), "libfakecuda.so")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-o", lib,
		"../../device/testdata/fakecuda.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	drv, err := device.OpenCUDA(lib)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = drv.Close() }()
	dev := tensor.Device{Type: tensor.CUDA}
	m, err := perf.Open(perf.Options{Driver: drv, Device: dev, Warmups: 1, Iterations: 2})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[tensor.Device]int{}
	count := func(_ context.Context, args []any) error {
		calls[args[0].(*tensor.Tensor).Device()]++
		return nil
	}
	c := optests.Case{Params: optests.Conv1d{Batch: 2, Dim: 8, Seqlen: 64, Width: 4, NoBias: true}}
	h, err := m.MeasureHost(t.Context(), fwd(t), c, count, count)
	if err != nil {
		t.Fatal(err)
	}
	x, weight, around := int64(2*8*64*4), int64(8*4*4), int64(1024) // tensors have memory around them
	if h.DownBytes < x || h.DownBytes > x+around || h.UpBytes < x+weight || h.UpBytes > x+weight+2*around {
		t.Errorf("%d bytes up and %d down, want about %d and %d", h.UpBytes, h.DownBytes, x+weight, x)
	}
	if calls[dev] != 3 || calls[tensor.Host()] != 6 {
		t.Errorf("calls %v", calls)
	}
	for _, s := range []perf.Stats{h.Up, h.Down, h.Both, h.Naive, h.Pageable, h.Pinned} {
		if s.Calls != 2 {
			t.Errorf("%d timed calls, want 2", s.Calls)
		}
	}
}
