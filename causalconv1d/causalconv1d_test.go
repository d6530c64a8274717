package causalconv1d_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/causalconv1d"
	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

func TestMain(m *testing.M) { os.Exit(testenv.WithSharedCache(m.Run)) }

// The generated file is the one that the go:generate line writes for the configuration.
func TestGeneratedFile(t *testing.T) {
	source, err := os.ReadFile("causalconv1d.go")
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "//go:generate go run "
	for line := range strings.Lines(string(source)) {
		command, ok := strings.CutPrefix(line, prefix)
		if !ok {
			continue
		}
		file := filepath.Join(t.TempDir(), "ops.go")
		args := strings.Fields(strings.Replace(command, "ops.go", file, 1))
		if out, err := exec.Command("go", append([]string{"run"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got, err := os.ReadFile("ops.go")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("ops.go is out of date: run go generate ./causalconv1d; it would write\n%s", want)
		}
		return
	}
	t.Fatalf("no line begins with %q", prefix)
}

// Every argument reaches its own parameter: each optional argument changes the result.
func TestEveryArgumentArrives(t *testing.T) {
	conv, ctx := family(t)
	x, w := floats([]float32{1, 2, 3, 4}, 1, 1, 4), floats([]float32{10, 1}, 1, 2)
	bias, past := floats([]float32{-1}, 1), floats([]float32{7}, 1, 1, 1)
	split, final := must(tensor.Of([]int32{0, 0, 1, -1}, 1, 4)), zeros(1, 1, 1)
	for _, c := range []struct {
		name string
		args causalconv1d.Forward
		want []float64
	}{
		{"plain", causalconv1d.Forward{}, []float64{1, 12, 23, 34}},
		{"bias", causalconv1d.Forward{Bias: bias}, []float64{0, 11, 22, 33}},
		{"sequences", causalconv1d.Forward{SeqIdx: split}, []float64{1, 12, 3, 0}},
		{"initial states", causalconv1d.Forward{InitialStates: past, FinalStates: final}, []float64{71, 12, 23, 34}},
		{"SiLU", causalconv1d.Forward{SiLU: true, Bias: floats([]float32{1000}, 1)}, []float64{1001, 1012, 1023, 1034}},
	} {
		c.args.Out, c.args.X, c.args.Weight = zeros(1, 1, 4), x, w
		if err := conv.Forward(ctx, c.args); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		same(t, c.name, c.args.Out, c.want)
	}
	same(t, "final states", final, []float64{4})
}

func TestBackwardWithStates(t *testing.T) {
	conv, ctx := family(t)
	a := causalconv1d.Backward{
		DX: zeros(1, 1, 2), DWeight: zeros(1, 2), DBias: zeros(1),
		X: floats([]float32{1, 2}, 1, 1, 2), Weight: floats([]float32{10, 1}, 1, 2), Bias: floats([]float32{5}, 1),
		DOut: floats([]float32{1, 3}, 1, 1, 2), InitialStates: floats([]float32{7}, 1, 1, 1),
		DFinalStates: floats([]float32{100}, 1, 1, 1), DInitialStates: zeros(1, 1, 1),
	}
	if err := conv.Backward(ctx, a); err != nil {
		t.Fatal(err)
	}
	same(t, "dx", a.DX, []float64{31, 103})
	same(t, "dweight", a.DWeight, []float64{10, 7})
	same(t, "dbias", a.DBias, []float64{4})
	same(t, "dinitial", a.DInitialStates, []float64{10})
}

// Slot 0 is a slot: only the index in PadSlot is skipped.
func TestPadSlot(t *testing.T) {
	conv, ctx := family(t)
	seven := int64(7)
	for _, c := range []struct {
		pad                 *int64
		slots               []int32
		out, states, varlen []float64
	}{
		{nil, []int32{0, -1}, []float64{1, 0}, []float64{1, 0}, []float64{1, 12, 0}},
		{&seven, []int32{7, 0}, []float64{0, 2}, []float64{2, 0}, []float64{0, 0, 3}},
	} {
		out, state, slots := zeros(2, 1), zeros(2, 1, 1), must(tensor.Of(c.slots, 2))
		w := floats([]float32{10, 1}, 1, 2)
		err := conv.Update(ctx, causalconv1d.Update{
			Out: out, X: floats([]float32{1, 2}, 2, 1), ConvState: state, Weight: w, ConvStateIndices: slots, PadSlot: c.pad,
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "update", out, c.out)
		same(t, "state", state, c.states)
		packed := zeros(1, 3)
		err = conv.VarlenForward(ctx, causalconv1d.VarlenForward{
			Out: packed, X: floats([]float32{1, 2, 3}, 1, 3), Weight: w, QueryStartLoc: indices(0, 2, 3),
			ConvStates: zeros(2, 1, 1), CacheIndices: slots, PadSlot: c.pad,
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "varlen", packed, c.varlen)
	}
}

func TestUpdateOfACircularState(t *testing.T) {
	conv, ctx := family(t)
	out, state := zeros(1, 1), floats([]float32{5, 6, 7}, 1, 1, 3)
	err := conv.Update(ctx, causalconv1d.Update{
		Out: out, X: floats([]float32{9}, 1, 1), ConvState: state, Weight: floats([]float32{100, 10, 1}, 1, 3), CacheSeqlens: indices(4),
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "out", out, []float64{759}) // the values 7 and 5 precede entry 4 mod 3
	same(t, "state", state, []float64{5, 9, 7})
}

func TestVarlenContinues(t *testing.T) {
	conv, ctx := family(t)
	out, states := zeros(1, 4), floats([]float32{8, 9}, 2, 1, 1)
	err := conv.VarlenForward(ctx, causalconv1d.VarlenForward{
		Out: out, X: floats([]float32{1, 2, 3, 4}, 1, 4), Weight: floats([]float32{10, 1}, 1, 2), Bias: floats([]float32{100}, 1),
		QueryStartLoc: indices(0, 2, 4), ConvStates: states, CacheIndices: indices(1, 0),
		HasInitialState: must(tensor.Of([]bool{true, false}, 2)),
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "out", out, []float64{191, 112, 103, 134})
	same(t, "states", states, []float64{4, 2})
}

// OnHost calls on the device that it gets, and leaves the other operators as they are.
func TestOnHost(t *testing.T) {
	conv, ctx := family(t)
	a := causalconv1d.Forward{Out: zeros(1, 1, 4), X: floats([]float32{1, 2, 3, 4}, 1, 1, 4), Weight: floats([]float32{10, 1}, 1, 2)}
	var unknown *device.TypeError
	if err := conv.OnHost(tensor.Device{Type: 77}).Forward(ctx, a); !errors.As(err, &unknown) {
		t.Errorf("got %v, want a TypeError of the device", err)
	}
	if err := errors.Join(conv.OnHost(tensor.Host()).Forward(ctx, a), conv.Forward(ctx, a)); err != nil {
		t.Error(err)
	}
	same(t, "out", a.Out, []float64{1, 12, 23, 34})
}

func TestErrors(t *testing.T) {
	reg := open(t)
	conv, ctx := family(t)
	var missing *registry.TypeError
	if err := conv.Forward(ctx, causalconv1d.Forward{Out: zeros(1, 1, 4), X: zeros(1, 1, 4)}); !errors.As(err, &missing) ||
		missing.Arg != "weight" {
		t.Errorf("got %v, want a TypeError that names weight", err)
	}
	var refused *registry.ArgumentError
	if err := conv.VarlenStates(ctx, causalconv1d.VarlenStates{States: zeros(1, 1, 1), X: zeros(3, 1),
		CuSeqlens: indices(0, 1, 3)}); !errors.As(err, &refused) {
		t.Errorf("got %v, want an ArgumentError", err)
	}
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := causalconv1d.New(reg); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func open(t *testing.T) *registry.Registry {
	t.Helper()
	reg, err := registry.Open(t.Context(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	return reg
}

func family(t *testing.T) (*causalconv1d.Ops, context.Context) {
	t.Helper()
	conv, err := causalconv1d.New(open(t))
	if err != nil {
		t.Fatal(err)
	}
	return conv, t.Context()
}

func must(t *tensor.Tensor, err error) *tensor.Tensor {
	if err != nil {
		panic(err)
	}
	return t
}

func same(t *testing.T, what string, got *tensor.Tensor, want []float64) {
	t.Helper()
	v, err := got.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(v, want) {
		t.Errorf("%s: got %v, want %v", what, v, want)
	}
}
