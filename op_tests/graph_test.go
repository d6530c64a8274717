package optests_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/device"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// graphCaller calls operators through graphs: it captures the work that a call queues and runs the
// graph.
type graphCaller struct {
	reg    *registry.Registry
	driver device.Driver
	stream device.Stream
	mode   device.CaptureMode
}

// captureModes begin with the mode that forbids the most functions, in all threads. So the first call of an
// operator, which loads its module and makes the pool of its workspace, is captured in this mode.
var captureModes = []struct {
	name string
	mode device.CaptureMode
}{{"global", device.CaptureGlobal}, {"thread_local", device.CaptureThread}, {"relaxed", device.CaptureRelaxed}}

func openGraphs(t *testing.T, reg *registry.Registry, dev tensor.Device) *graphCaller {
	t.Helper()
	driver, err := reg.Devices().Driver(dev.Type)
	if err != nil {
		t.Fatal(err)
	}
	g := &graphCaller{reg: reg, driver: driver}
	if g.stream, err = driver.NewStream(int(dev.ID)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.stream.Close() })
	return g
}

// call captures a call in a graph and runs the graph the given number of times.
func (g *graphCaller) call(ctx context.Context, times int, op string, args []any) error {
	graph, err := g.driver.Capture(g.stream, g.mode, func() error {
		return call(device.WithStream(ctx, g.stream), g.reg, op, args)
	})
	if err != nil {
		return err
	}
	for range times {
		err = errors.Join(err, graph.Launch(g.stream))
	}
	return errors.Join(err, g.driver.Synchronize(g.stream), graph.Close())
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
	if dev.IsHost() {
		t.Skip("graphs need a GPU: -device=cuda:0 or -device=rocm:0")
	}
	g := openGraphs(t, target.reg, dev)
	for _, m := range captureModes {
		g.mode = m.mode
		for _, op := range optests.Operators() {
			times := 1
			if slices.Contains([]string{"causal_conv1d_fwd", "causal_conv1d_bwd"}, op) {
				times = 3 // they read nothing that they write, so each run has the same results
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
