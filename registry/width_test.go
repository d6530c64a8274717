//go:build linux

package registry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// widthsApartOnCPU returns a copy of the project's tree that builds each range of widths
// separately on the CPU.
func widthsApartOnCPU(t *testing.T) string {
	t.Helper()
	const define = "define    = \"AITER_WIDTH\" # AITER_WIDTH_LEAST and AITER_WIDTH_MOST\n"
	return quickTree(t, define+"targets   = [\"hip\", \"cuda\"]\n", define)
}

// TestFirstCallOfEachRangeCompiles checks that the size of the weight's second
// dimension, and nothing else, selects the range.
func TestFirstCallOfEachRangeCompiles(t *testing.T) {
	testenv.Long(t)
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: widthsApartOnCPU(t), Observer: seen})
	fwd := lookup(t, r, "causal_conv1d_fwd")
	taps := func(dt tensor.DType, dim, width int64) {
		t.Helper()
		x, w := must(tensor.New(dt, 1, dim, 4)), must(tensor.New(dt, dim, width))
		if err := fwd.Call(context.Background(), must(tensor.New(dt, 1, dim, 4)), x, w); err != nil {
			t.Errorf("%d taps: %v", width, err)
		}
	}
	taps(tensor.Float32, 1, 2)
	seen.expect(t, "2 taps", "fwd.cpp width=1-4", "cpu.cpp", "long_row.cpp", "aiter_ffi.cpp")
	taps(tensor.Float32, 7, 4)
	taps(tensor.Float16, 1, 1)
	seen.expect(t, "other sizes of that range")
	if r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("ready, but a call would compile the range of 5 taps")
	}
	taps(tensor.Float32, 1, 5)
	taps(tensor.Float32, 1, 6)
	seen.expect(t, "5 taps", "fwd.cpp width=5-6")
	taps(tensor.Float32, 1, 8)
	seen.expect(t, "8 taps", "fwd.cpp width=7-8")
	taps(tensor.Float32, 1, 9)
	seen.expect(t, "9 taps", "fwd.cpp width=9-33")
	taps(tensor.Float32, 1, 100)
	seen.expect(t, "100 taps", "fwd.cpp width=34-")
	taps(tensor.Float32, 1, 3)
	seen.expect(t, "sizes of ranges that are there")
	if !r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("not ready, but every range is built")
	}
}

// TestOperatorRejectsSizes checks that a tensor without the dimension, or with a size
// below all ranges, reaches the code of the first range, whose own checks reject it.
func TestOperatorRejectsSizes(t *testing.T) {
	seen := new(units)
	apart := lookup(t, open(t, registry.Options{CacheDir: t.TempDir(), Root: widthsApartOnCPU(t), Observer: seen}), "causal_conv1d_fwd")
	together := lookup(t, open(t, registry.Options{Root: quickTree(t, "", "")}), "causal_conv1d_fwd")
	for i, shape := range [][]int64{{1}, {1, 0}, {}, {1, 1, 9}} {
		var got, want *registry.OperatorError
		out, x, w := must(tensor.New(tensor.Float32, 1, 1, 4)), must(tensor.New(tensor.Float32, 1, 1, 4)),
			must(tensor.New(tensor.Float32, shape...))
		if err := apart.Call(context.Background(), out, x, w); !errors.As(err, &got) {
			t.Fatalf("weight %v: got %v, want an OperatorError", shape, err)
		}
		if err := together.Call(context.Background(), out, x, w); !errors.As(err, &want) || *got != *want || got.Arg != "weight" {
			t.Errorf("weight %v:\n%+v, from the whole module\n%+v, %v", shape, *got, want, err)
		}
		if i == 0 {
			seen.expect(t, "a weight of one dimension", "fwd.cpp width=1-4", "cpu.cpp", "long_row.cpp", "aiter_ffi.cpp")
		}
	}
	seen.expect(t, "other wrong weights")
}

// TestSelectionAllocatesNothing checks that the selection by type and size adds no
// allocation to the one of a call.
func TestSelectionAllocatesNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("under the race detector the pool of a call's arguments loses some of them")
	}
	r := open(t, registry.Options{Root: widthsApartOnCPU(t)})
	fwd := lookup(t, r, "causal_conv1d_fwd")
	ctx := context.Background()
	var calls [][]any
	for _, width := range []int64{4, 9} {
		x := must(tensor.New(tensor.Float32, 0, 1, 4))
		calls = append(calls, []any{x, x, must(tensor.New(tensor.Float32, 1, width)), nil, false})
	}
	both := func() {
		for _, args := range calls {
			if err := fwd.Call(ctx, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	both()
	if n := testing.AllocsPerRun(100, both); n > 2 {
		t.Errorf("two calls make %v allocations, want at most 2", n)
	}
}

// TestPartRejectsOtherWidths checks that the library of one range rejects calls with a
// size of another range.
func TestPartRejectsOtherWidths(t *testing.T) {
	callFwd := forwardOf(t, widthsApartOnCPU(t), "width=1-4")
	for width, want := range map[int64]string{
		1: "", 4: "",
		5: "causal_conv1d_fwd: argument 'weight': expected a width from 1 to 4, which is all that this build holds, got shape (1, 5)",
		0: "causal_conv1d_fwd: argument 'weight': expected a width of at least 1, got shape (1, 0)",
	} {
		out, x, w := must(tensor.New(tensor.Float32, 1, 1, 4)), must(tensor.New(tensor.Float32, 1, 1, 4)),
			must(tensor.New(tensor.Float32, 1, width))
		expectCallError(t, callFwd(out, x, w), "ValueError", want)
	}
}
