package hostcall_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/tensor"
)

// gpu is a device made of host memory, whose streams run their work late and in a random order.
type gpu struct {
	t    testing.TB
	file string
	lib  *dl.Library
	drv  device.Driver
	pool *device.Pool

	kernel func(context.Context, []*tensor.Tensor) error // of problems
}

// buildGPU compiles the library of a fake device. It has no driver yet.
func buildGPU(t testing.TB, name string) *gpu {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on PATH")
	}
	file := filepath.Join(t.TempDir(), "lib"+name+".so")
	source := filepath.Join("..", "..", "device", "testdata", name+".c")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-o", file, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	lib, err := dl.Open(dl.Local, file)
	must(t, err)
	g := &gpu{t: t, file: file, lib: lib}
	g.kernel = g.launch
	return g
}

func openGPU(t testing.TB, name string, opts device.PoolOptions) *gpu {
	t.Helper()
	g := buildGPU(t, name)
	open := map[string]func(...string) (device.Driver, error){"fakehip": device.OpenHIP, "fakecuda": device.OpenCUDA}[name]
	var err error
	g.drv, err = open(g.file)
	must(t, err)
	t.Cleanup(func() { must(t, g.drv.Close()) })
	g.pool, err = g.drv.NewPool(0, opts)
	must(t, err)
	return g
}

func (g *gpu) fake(fn string, args ...uintptr) int {
	g.t.Helper()
	addr, err := g.lib.Sym(fn)
	must(g.t, err)
	return int(int32(dl.Call(addr, args...)))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// launch queues the fake kernel: out = 3x + w + state by rows, and state += x[0].
func (g *gpu) launch(ctx context.Context, ts []*tensor.Tensor) error {
	s, ok := device.StreamFrom(ctx)
	if !ok {
		return errors.New("no stream")
	}
	for i, x := range ts {
		if x != nil && !x.Contiguous() {
			return fmt.Errorf("argument %d has strides %v", i, x.Strides())
		}
	}
	state := uintptr(0)
	if ts[3] != nil {
		state = ts[3].Ptr()
	}
	g.fake("fake_kernel", s.Handle, ts[0].Ptr(), ts[1].Ptr(), ts[2].Ptr(), state, uintptr(ts[1].Dim(0)), uintptr(ts[1].Dim(1)))
	return nil
}

// problem is a call of the fake kernel and its expected results.
type problem struct {
	call            hostcall.Call
	out, state      *tensor.Tensor
	want, wantState []float64
}

type shape struct {
	rows, cols       int64
	pinned, inPlace  bool
	gap              int64 // columns between rows
	stateless, split bool  // no state; split along columns too
}

func (g *gpu) tensor(sh shape, rows, cols int64) *tensor.Tensor {
	n := rows * (cols + sh.gap) * 4
	var s *tensor.Storage
	var err error
	if sh.pinned {
		s, err = g.drv.AllocHost(n)
	} else {
		s, err = tensor.HostStorage(n)
	}
	must(g.t, err)
	t, err := tensor.View(s, tensor.Float32, []int64{rows, cols}, []int64{cols + sh.gap, 1}, 0)
	must(g.t, err)
	values := make([]float64, rows*cols)
	for i := range values {
		values[i] = float64(i%1013) - 500
	}
	must(g.t, t.SetFloat64s(values))
	return t
}

func (g *gpu) problem(sh shape) *problem {
	x, out, w := g.tensor(sh, sh.rows, sh.cols), g.tensor(sh, sh.rows, sh.cols), g.tensor(shape{}, 1, sh.cols)
	if sh.inPlace {
		out = x
	}
	p := &problem{out: out, call: hostcall.Call{Units: []int64{sh.rows}, Launch: g.kernel}}
	along := [][]int{{0, 1}, {-1, 1}, {0, -1}}
	if sh.split {
		p.call.Units = append(p.call.Units, sh.cols)
	} else {
		along = [][]int{{0}, {-1}, {0}}
	}
	xs, ws, states := values(g.t, x), values(g.t, w), make([]float64, sh.rows)
	p.call.Args = []hostcall.Argument{
		{Tensor: out, Written: true, Along: along[0]}, {Tensor: x, Read: true, Along: along[0]}, {Tensor: w, Read: true, Along: along[1]}, {},
	}
	if !sh.stateless {
		p.state = g.tensor(sh, sh.rows, 1)
		states = values(g.t, p.state)
		p.call.Args[3] = hostcall.Argument{Tensor: p.state, Read: true, Written: true, Along: along[2]}
	}
	for r := range sh.rows {
		for c := range sh.cols {
			p.want = append(p.want, 3*xs[r*sh.cols+c]+ws[c]+states[r])
		}
		p.wantState = append(p.wantState, states[r]+xs[r*sh.cols])
	}
	return p
}

func values(t testing.TB, x *tensor.Tensor) []float64 {
	t.Helper()
	v, err := x.Float64s()
	must(t, err)
	return v
}

// wrong returns the position of the first wrong result, -1 for none.
func (p *problem) wrong(t testing.TB) int {
	t.Helper()
	for i, v := range values(t, p.out) {
		if v != p.want[i] {
			return i
		}
	}
	if p.state != nil {
		for i, v := range values(t, p.state) {
			if v != p.wantState[i] {
				return i
			}
		}
	}
	return -1
}

var shapes = map[string]shape{
	"pageable":       {rows: 37, cols: 300},
	"pinned":         {rows: 37, cols: 300, pinned: true},
	"in place":       {rows: 20, cols: 100, inPlace: true},
	"gaps":           {rows: 37, cols: 301, gap: 5},
	"pinned gaps":    {rows: 90, cols: 64, gap: 3, pinned: true},
	"two axes":       {rows: 3, cols: 4000, stateless: true, split: true},
	"pinned columns": {rows: 2, cols: 4000, stateless: true, split: true, pinned: true},
	"one row":        {rows: 1, cols: 10},
	"no rows":        {rows: 0, cols: 10},
	"large":          {rows: 64, cols: 40000},
}

// Streams that run their work in any order that events allow give the right results. The first call allocates memory of the driver,
// the second does not.
func TestAnyOrder(t *testing.T) {
	for _, name := range []string{"fakehip", "fakecuda"} {
		for title, sh := range shapes {
			t.Run(name+"/"+title, func(t *testing.T) {
				t.Parallel()
				g := openGPU(t, name, device.PoolOptions{})
				e := hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 4096, Buffers: 3})
				if title == "large" {
					e = hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 2 << 20})
				}
				var before device.PoolStats
				for seed := range uintptr(8) {
					g.fake("fake_shuffle", seed)
					p := g.problem(sh)
					must(t, e.Run(t.Context(), p.call))
					if at := p.wrong(t); at >= 0 {
						t.Fatalf("seed %d: element %d is wrong", seed, at)
					}
					now := g.pool.Stats()
					if now.Device.InUse != 0 || now.Pinned.InUse != 0 {
						t.Fatalf("in use after the call: %+v", now)
					}
					if seed > 1 && (now.Device.Allocations != before.Device.Allocations || now.Pinned.Allocations != before.Pinned.Allocations) {
						t.Fatalf("call %d took memory from the driver: %+v, %+v before", seed, now, before)
					}
					before = now
				}
				if n := g.fake("fake_pageable"); n != 0 {
					t.Errorf("%d copies of memory that is not pinned", n)
				}
			})
		}
	}
}

// Several processors copy the chunks of a piece when no other piece is in flight.
func TestChunksOfAPiece(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	g := openGPU(t, "fakehip", device.PoolOptions{})
	e := hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 16 << 20, Buffers: 1})
	for _, gap := range []int64{0, 3} {
		p := g.problem(shape{rows: 20, cols: 60_001, gap: gap})
		must(t, e.Run(t.Context(), p.call))
		if at := p.wrong(t); at >= 0 {
			t.Errorf("gap of %d columns: element %d is wrong", gap, at)
		}
	}
}

// Pinned tensors are copied without staging.
func TestPinnedTensorsAreUsedDirectly(t *testing.T) {
	g := openGPU(t, "fakehip", device.PoolOptions{})
	e := hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 4096})
	must(t, e.Run(t.Context(), g.problem(shape{rows: 37, cols: 300, pinned: true}).call))
	if peak := g.pool.Stats().Pinned.Peak; peak > 4096 { // the weights, which are not pinned
		t.Errorf("%d bytes of pinned memory", peak)
	}
}

// A call of the runtime that fails once, or a device that is lost from some call on, gives an error and leaves no memory in use.
func TestEveryCallFails(t *testing.T) {
	g := openGPU(t, "fakehip", device.PoolOptions{})
	sh := shape{rows: 12, cols: 300}
	for _, lost := range []uintptr{0, 1} {
		good := 0
		for at := uintptr(1); good < 3; at += 1 + lost*6 {
			e := hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 2400, Buffers: 2, Calls: 1})
			g.fake("fake_shuffle", at)
			p := g.problem(sh)
			g.fake("fake_fail_at", at, lost)
			err := e.Run(t.Context(), p.call)
			if g.fake("fake_calls") < int(at) {
				good++
				g.fake("fake_fail_at", 0, 0)
				must(t, errors.Join(err, e.Close()))
				continue
			}
			var failed *device.Error
			if !errors.As(err, &failed) || failed.Code != 719 {
				t.Fatalf("call %d fails: %v", at, err)
			}
			if now := g.pool.Stats(); now.Device.InUse != 0 || now.Pinned.InUse != 0 {
				t.Fatalf("call %d fails: in use %+v", at, now)
			}
			g.fake("fake_fail_at", 0, 0)
			if lost == 0 { // the engine is usable
				q := g.problem(sh)
				must(t, e.Run(t.Context(), q.call))
				if i := q.wrong(t); i >= 0 {
					t.Fatalf("after call %d failed: element %d is wrong", at, i)
				}
			}
			must(t, e.Close())
		}
	}
}

// A context that ends midway ends the call after the pieces that are queued.
func TestCancel(t *testing.T) {
	g := openGPU(t, "fakecuda", device.PoolOptions{})
	e := hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 1200, Buffers: 2, Calls: 1})
	for after := range int64(6) {
		g.fake("fake_shuffle", uintptr(after))
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("enough")
		p := g.problem(shape{rows: 12, cols: 300})
		var pieces atomic.Int64
		p.call.Launch = func(ctx context.Context, ts []*tensor.Tensor) error {
			if pieces.Add(1) > after {
				cancel(reason)
			}
			return g.launch(ctx, ts)
		}
		if err := e.Run(ctx, p.call); !errors.Is(err, reason) {
			t.Errorf("after %d pieces: %v", after, err)
		}
		if n := pieces.Load(); n != after+1 {
			t.Errorf("%d pieces were queued, want %d", n, after+1)
		}
		if now := g.pool.Stats(); now.Device.InUse != 0 || now.Pinned.InUse != 0 {
			t.Errorf("in use %+v", now)
		}
		if err := e.Run(ctx, p.call); !errors.Is(err, reason) {
			t.Errorf("a context that is over: %v", err)
		}
		cancel(nil)
	}
}

// An operator that fails ends the call with its error. A call that needs more memory than the pool's limit does not run the operator.
func TestErrors(t *testing.T) {
	g := openGPU(t, "fakehip", device.PoolOptions{Limit: 100 << 10})
	e := hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 1200, Buffers: 2})
	wrong := errors.New("wrong")
	p := g.problem(shape{rows: 12, cols: 300})
	n := 0
	p.call.Launch = func(context.Context, []*tensor.Tensor) error {
		if n++; n == 3 {
			return wrong
		}
		return nil
	}
	if err := e.Run(t.Context(), p.call); !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
	var limit *device.PoolLimitError
	n = 0
	p = g.problem(shape{rows: 2, cols: 30000})
	p.call.Launch = func(context.Context, []*tensor.Tensor) error { n++; return nil }
	if err := e.Run(t.Context(), p.call); !errors.As(err, &limit) || n != 0 {
		t.Errorf("beyond the limit: %v, %d calls", err, n)
	}
	if now := g.pool.Stats(); now.Device.InUse != 0 || now.Pinned.InUse != 0 {
		t.Errorf("in use %+v", now)
	}
}

func TestConcurrentCalls(t *testing.T) {
	g := openGPU(t, "fakehip", device.PoolOptions{})
	e := hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 4096})
	g.fake("fake_shuffle", 1)
	var wg sync.WaitGroup
	for range 8 {
		p := g.problem(shape{rows: 37, cols: 300})
		wg.Go(func() {
			if err := e.Run(t.Context(), p.call); err != nil {
				t.Error(err)
			}
		})
		defer func() {
			if at := p.wrong(t); at >= 0 {
				t.Errorf("element %d is wrong", at)
			}
		}()
	}
	wg.Wait()
}
