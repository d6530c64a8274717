package optests_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/dl"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// graphCaller calls operators through graphs: it captures the work that a call queues and runs the
// graph. It uses functions of the NVIDIA driver, named as in cuda.h.
type graphCaller struct {
	reg    *registry.Registry
	driver device.Driver
	stream device.Stream
	mode   uintptr // CUstreamCaptureMode
	of     map[string]uintptr
}

// captureModes are the values of CUstreamCaptureMode. Global is PyTorch's default and forbids the most
// functions, in all threads. It comes first, so that the first call of an operator, which loads its module and makes
// the pool of its workspace, is captured in this mode.
var captureModes = []struct {
	name string
	mode uintptr
}{{"global", 0}, {"thread_local", 1}, {"relaxed", 2}}

var graphRoutines = []string{
	"cuStreamGetCtx", "cuCtxSetCurrent", "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
	"cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
}

func openGraphs(t *testing.T, reg *registry.Registry, dev tensor.Device) *graphCaller {
	t.Helper()
	driver, err := reg.Devices().Driver(dev.Type)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := dl.First(dl.Local, device.CUDALibraries(os.Getenv)...)
	if err != nil {
		t.Fatal(err)
	}
	g := &graphCaller{reg: reg, driver: driver, of: map[string]uintptr{}}
	for _, name := range graphRoutines {
		if g.of[name], err = lib.Sym(name); err != nil {
			t.Fatal(err)
		}
	}
	if g.stream, err = driver.NewStream(int(dev.ID)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = driver.DestroyStream(g.stream) })
	return g
}

// do calls a function of the driver, as dl.Call does.
//
//go:uintptrescapes
func (g *graphCaller) do(name string, args ...uintptr) error {
	if code := int32(dl.Call(g.of[name], args...)); code != 0 {
		return fmt.Errorf("%s: error %d of the driver", name, code)
	}
	return nil
}

// call captures a call in a graph and runs the graph the given number of times.
func (g *graphCaller) call(ctx context.Context, times int, op string, args []any) error {
	runtime.LockOSThread() // which has a current context
	defer runtime.UnlockOSThread()
	var current, graph, exec uintptr
	err := g.do("cuStreamGetCtx", g.stream.Handle, uintptr(unsafe.Pointer(&current)))
	if err == nil {
		err = g.do("cuCtxSetCurrent", current)
	}
	if err == nil {
		err = g.do("cuStreamBeginCapture_v2", g.stream.Handle, g.mode)
	}
	if err != nil {
		return err
	}
	failed := call(device.WithStream(ctx, g.stream), g.reg, op, args)
	err = g.do("cuStreamEndCapture", g.stream.Handle, uintptr(unsafe.Pointer(&graph)))
	if graph == 0 { // nothing was queued, or it could not be captured
		return errors.Join(failed, err)
	}
	defer func() { _ = g.do("cuGraphDestroy", graph) }()
	if failed != nil || err != nil {
		return errors.Join(failed, err)
	}
	if err := g.do("cuGraphInstantiateWithFlags", uintptr(unsafe.Pointer(&exec)), graph, 0); err != nil {
		return err
	}
	defer func() { _ = g.do("cuGraphExecDestroy", exec) }()
	for range times {
		if err := g.do("cuGraphLaunch", exec, g.stream.Handle); err != nil {
			return err
		}
	}
	return g.driver.Synchronize(g.stream)
}

// TestGraphs compares calls that were captured in a graph with the reference. A captured call must
// not wait, must allocate in stream order, and must find in its workspace what the previous run
// left there.
func TestGraphs(t *testing.T) {
	target := open(t)
	dev, err := tensor.ParseDevice(*deviceFlag)
	if err != nil {
		t.Fatal(err)
	}
	if dev.Type != tensor.CUDA {
		t.Skip("graphs of NVIDIA's GPUs: -device=cuda:0")
	}
	g := openGraphs(t, target.reg, dev)
	for _, m := range captureModes {
		g.mode = m.mode
		for _, op := range optests.Operators() {
			times := 1
			if slices.Contains([]string{"causal_conv1d_fwd", "causal_conv1d_bwd"}, op) {
				times = 3 // nothing of theirs is both read and written
			}
			target.runner.Call = func(op string, args []any) error { return g.call(t.Context(), times, op, args) }
			t.Run(m.name+"/"+op, func(t *testing.T) {
				if op == "causal_conv1d_bwd" {
					target.checkIdeal(t, op, slices.Values(reducedCases()))
				}
				target.checkIdeal(t, op, gridCases(t, op))
			})
		}
	}
}

// reducedCases are large enough for backward to sum dweight in a second kernel, which is launched
// before the first one ends.
func reducedCases() []optests.Case {
	var cases []optests.Case
	for n, dtype := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
		for _, layout := range []optests.Layout{optests.ChannelFirst, optests.ChannelLast} {
			cases = append(cases, optests.Case{
				DType: dtype, WeightDType: dtype, Seed: uint64(n),
				Params: optests.Conv1d{
					Batch: 2, Dim: 48, Seqlen: 16384, Width: 4 + 2*int64(n), SiLU: true, Layout: layout, WithSeqIdx: n == 1,
				},
			})
		}
	}
	return cases
}
