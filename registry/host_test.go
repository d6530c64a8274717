package registry_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// Every operator gives the reference's results in pieces of any size, at any placement.
func TestCallInPieces(t *testing.T) {
	reg := openShared(t, registry.Options{})
	for _, name := range optests.Operators() {
		t.Run(name, func(t *testing.T) {
			op, err := reg.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			cases, err := optests.EdgeCases(name)
			if err != nil {
				t.Fatal(err)
			}
			runner := optests.Runner{Call: func(_ string, args []any) error {
				return op.CallPieces(t.Context(), registry.HostOptions{Piece: 700, Buffers: 2}, args...)
			}}
			n := 0
			for result := range runner.RunCases(name, slices.Values(testenv.Sample(cases, 12))) {
				if n++; !result.Ideal() {
					t.Error(result)
				}
			}
			if n == 0 {
				t.Error("no cases")
			}
		})
	}
}

func host(t *testing.T, dt tensor.DType, shape ...int64) *tensor.Tensor {
	t.Helper()
	x, err := tensor.New(dt, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Calls are split along the declared sizes that all written arguments have.
func TestAxesOfCalls(t *testing.T) {
	reg := openShared(t, registry.Options{})
	f := func(shape ...int64) *tensor.Tensor { return host(t, tensor.Float32, shape...) }
	i := func(n int64) *tensor.Tensor { return host(t, tensor.Int32, n) }
	for _, c := range []struct {
		op   string
		args []any
		want []int64
	}{
		{"causal_conv1d_fwd", []any{f(6, 8, 9), f(6, 8, 9), f(4, 3), f(8)}, []int64{6, 4}},
		{"causal_conv1d_fwd", []any{f(6, 8, 9), f(6, 8, 9), f(8, 3), f(0), true}, []int64{6, 8}},
		{"causal_conv1d_bwd", []any{f(6, 8, 9), f(8, 3), f(8), f(6, 8, 9), f(8, 3), f(8), f(6, 8, 9)}, []int64{8}},
		{"causal_conv1d_update", []any{f(6, 8), f(6, 8), f(7, 8, 2), f(2, 3), nil, false, nil, i(6)}, []int64{2}},
		{"causal_conv1d_varlen_fwd", []any{f(8, 30), f(8, 30), f(8, 3), nil, false, i(4)}, []int64{8}},
		{"causal_conv1d_varlen_states", []any{f(3, 8, 2), f(30, 8), i(4)}, []int64{8}},
		{"rms_norm", []any{f(5, 6, 8), f(5, 6, 8), f(8)}, []int64{5}},
		{"rms_norm", []any{f(8), f(8), f(8)}, nil},
	} {
		op, err := reg.Lookup(c.op)
		if err != nil {
			t.Fatal(err)
		}
		if got := op.Axes(c.args...); !slices.Equal(got, c.want) {
			t.Errorf("%s: units %v, want %v", c.op, got, c.want)
		}
	}
}

func TestCallHostErrors(t *testing.T) {
	reg := openShared(t, registry.Options{})
	op, err := reg.Lookup("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	both := host(t, tensor.Float32, 1, 2, 9)
	x, _ := both.Slice(2, 0, 8)
	out, _ := both.Slice(2, 1, 9)
	weight := host(t, tensor.Float32, 2, 3)
	far, err := tensor.View(tensor.ForeignStorage(4096, 4096, tensor.Device{Type: tensor.CUDA}, nil), tensor.Float32, []int64{1, 2, 8}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	call := func(args ...any) error { return op.CallPieces(t.Context(), registry.HostOptions{}, args...) }
	var shared *registry.SharedMemoryError
	if err := call(out, x, weight); !errors.As(err, &shared) || shared.Arg != "out" || shared.Other != "x" {
		t.Errorf("overlapping tensors: %v", err)
	}
	var remote *registry.HostTensorError
	if err := call(far, x, weight); !errors.As(err, &remote) || remote.Arg != "out" {
		t.Errorf("a tensor on a device: %v", err)
	}
	var argument *registry.ArgumentError
	if err := call(x, x, host(t, tensor.Float32, 3)); !errors.As(err, &argument) {
		t.Errorf("a wrong shape: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := op.CallPieces(ctx, registry.HostOptions{}, x, x, weight); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
	if err := op.CallHost(t.Context(), tensor.Host(), x, host(t, tensor.Float32, 1, 2, 8), weight); err != nil {
		t.Errorf("on the CPU: %v", err)
	}
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := reg.HostPool(tensor.Host()); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// CallHost refuses an output whose elements share memory, with the message of Call.
func TestCallHostOfSharedElements(t *testing.T) {
	op, err := openShared(t, registry.Options{}).Lookup("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	memory, x, weight := host(t, tensor.Float32, 128), host(t, tensor.Float32, 4, 2, 8), host(t, tensor.Float32, 2, 3)
	for _, c := range []struct {
		strides []int64
		shares  bool
	}{
		{[]int64{0, 8, 1}, true}, {[]int64{8, 8, 1}, true}, {[]int64{8, 4, 1}, true}, {[]int64{7, 28, 1}, true},
		{[]int64{16, 8, 1}, false}, {[]int64{8, 32, 1}, false}, {[]int64{1, 4, 8}, false}, {[]int64{2, 1, 9}, false},
	} {
		out, err := tensor.View(memory.Storage(), tensor.Float32, []int64{4, 2, 8}, c.strides, 0)
		if err != nil {
			t.Fatal(err)
		}
		called, inPieces := op.Call(t.Context(), out, x, weight), op.CallPieces(t.Context(), registry.HostOptions{}, out, x, weight)
		if !c.shares {
			if called != nil || inPieces != nil {
				t.Errorf("strides %v: Call: %v; CallHost: %v", c.strides, called, inPieces)
			}
			continue
		}
		var refused *registry.OperatorError
		if !errors.As(called, &refused) || refused.Kind != "ValueError" || refused.Arg != "out" || refused.About != "overlap" {
			t.Errorf("strides %v: Call: %v", c.strides, called)
			continue
		}
		var shared *registry.SharedMemoryError
		if !errors.As(inPieces, &shared) || shared.Arg != "out" || shared.Other != "out" || shared.Error() != called.Error() {
			t.Errorf("strides %v: CallHost: %v, want %v", c.strides, inPieces, called)
		}
	}
}

// Verification compares each piece.
func TestCallInPiecesVerified(t *testing.T) {
	reg := openShared(t, registry.Options{Verify: true})
	op, err := reg.Lookup("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	x, out, weight := host(t, tensor.Float32, 4, 2, 9), host(t, tensor.Float32, 4, 2, 9), host(t, tensor.Float32, 2, 3)
	if err := op.CallPieces(t.Context(), registry.HostOptions{Piece: 64}, out, x, weight); err != nil {
		t.Error(err)
	}
}

// openShared opens a registry with the tests' shared cache.
func openShared(t *testing.T, opts registry.Options) *registry.Registry {
	t.Helper()
	dir, err := testenv.SharedCache()
	if err != nil {
		t.Fatal(err)
	}
	opts.CacheDir = dir
	reg, err := registry.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	return reg
}
