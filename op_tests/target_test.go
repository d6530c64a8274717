package optests_test

import (
	"context"
	"flag"
	"iter"
	"os"
	"testing"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// target is a registry and a runner for one device.
type target struct {
	reg    *registry.Registry
	runner optests.Runner
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testenv.WithSharedCache(m.Run))
}

// open opens a registry for the device that -device names.
func open(t *testing.T) target {
	t.Helper()
	reg, err := registry.Open(t.Context(), registry.Options{Host: registry.HostOptions{Piece: *pieceFlag}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	dev, err := tensor.ParseDevice(*deviceFlag)
	if err != nil {
		t.Fatal(err)
	}
	run := optests.Runner{Call: func(op string, args []any) error { return call(t.Context(), reg, op, args) }}
	if *hostFlag {
		run.Call = func(op string, args []any) error {
			found, err := reg.Lookup(op)
			if err != nil {
				return err
			}
			return found.CallHost(t.Context(), dev, args...)
		}
		if *pinnedFlag {
			drv, err := reg.Devices().Driver(dev.Type)
			if err != nil {
				t.Fatal(err)
			}
			run.Device = optests.Pinned(drv)
		}
	} else if !dev.IsHost() {
		run.Device = remote{reg.Devices(), dev}
	}
	return target{reg, run}
}

func call(ctx context.Context, reg *registry.Registry, name string, args []any) error {
	op, err := reg.Lookup(name)
	if err != nil {
		return err
	}
	return op.Call(ctx, args...)
}

// remote copies tensors to a device other than the host and back.
type remote struct {
	*device.Devices
	dev tensor.Device
}

var _ optests.Device = remote{}

func (r remote) ToDevice(t *tensor.Tensor) (*tensor.Tensor, error) {
	return r.Devices.Upload(context.Background(), t, r.dev)
}

func (r remote) ToHost(t *tensor.Tensor) (*tensor.Tensor, error) {
	return r.Devices.Download(context.Background(), t)
}

// checkIdeal reports every case that is less accurate than float32 sums rounded once.
func (g target) checkIdeal(t *testing.T, op string, cases iter.Seq[optests.Case]) {
	start, n, failed := time.Now(), 0, 0
	for result := range g.runner.RunCases(op, guarded(cases)) {
		n++
		if result.Ideal() {
			continue
		}
		t.Error(result)
		if failed++; failed == 10 {
			t.Fatalf("stopped after %d failures in %d cases", failed, n)
		}
	}
	if n == 0 {
		t.Error("no cases")
	}
	t.Logf("%d cases in %.1fs", n, time.Since(start).Seconds())
}

// guarded returns the cases with guard bytes, or without them for -no-guard.
func guarded(cases iter.Seq[optests.Case]) iter.Seq[optests.Case] {
	return func(yield func(optests.Case) bool) {
		for c := range cases {
			c.NoGuard = *noGuardFlag
			if !yield(c) {
				return
			}
		}
	}
}

// run calls the problem's operator once and returns its outputs, on the host.
func (g target) run(t *testing.T, p *optests.Problem) map[string]*tensor.Tensor {
	t.Helper()
	uploaded, err := g.runner.Upload(p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = uploaded.Free() }()
	if err := g.runner.Call(p.Op, uploaded.Args); err != nil {
		t.Fatal(err)
	}
	out, err := uploaded.Outputs()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// outputs runs the case once and returns the bytes of the outputs.
func (g target) outputs(t *testing.T, op string, c optests.Case) map[string][]byte {
	t.Helper()
	p, err := optests.Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	bits := map[string][]byte{}
	for name, out := range g.run(t, p) {
		bits[name] = rowMajor(t, out)
	}
	return bits
}

func rowMajor(t *testing.T, v *tensor.Tensor) []byte {
	t.Helper()
	c, err := v.Compact()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
