package causalconv1d_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aiter-go/aiter/causalconv1d"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// A service opens one registry and keeps it.
func Example() {
	ctx := context.Background()
	reg, err := registry.Open(ctx, registry.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	conv, err := causalconv1d.New(reg)
	if err != nil {
		log.Fatal(err)
	}

	x, err := tensor.Of([]float32{1, 2, 3, 4}, 1, 1, 4) // batch, dim, seqlen
	if err != nil {
		log.Fatal(err)
	}
	weight, err := tensor.Of([]float32{10, 1}, 1, 2) // dim, width
	if err != nil {
		log.Fatal(err)
	}
	out, err := tensor.New(tensor.Float32, 1, 1, 4)
	if err != nil {
		log.Fatal(err)
	}
	if err := conv.Forward(ctx, causalconv1d.Forward{Out: out, X: x, Weight: weight}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Float64s())
	// Output: [1 12 23 34] <nil>
}

// The gradients of a sum of all outputs.
func ExampleOps_Backward() {
	ctx, conv, done := setUp()
	defer done()
	dx, dweight := zeros(1, 1, 4), zeros(1, 2)
	err := conv.Backward(ctx, causalconv1d.Backward{
		DX: dx, DWeight: dweight,
		X: floats([]float32{1, 2, 3, 4}, 1, 1, 4), Weight: floats([]float32{10, 1}, 1, 2),
		DOut: floats([]float32{1, 1, 1, 1}, 1, 1, 4),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dx.Float64s())
	fmt.Println(dweight.Float64s())
	// Output:
	// [11 11 11 1] <nil>
	// [6 10] <nil>
}

// A prompt in one call, then one token at a time: the results equal those of one call
// for all.
func ExampleOps_Update() {
	ctx, conv, done := setUp()
	defer done()
	weight, state := floats([]float32{100, 10, 1}, 1, 3), zeros(1, 1, 2)
	prompt := zeros(1, 1, 2)
	err := conv.Forward(ctx, causalconv1d.Forward{
		Out: prompt, X: floats([]float32{1, 2}, 1, 1, 2), Weight: weight, FinalStates: state,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(prompt.Float64s())
	for _, token := range []float32{3, 4} {
		out := zeros(1, 1)
		err := conv.Update(ctx, causalconv1d.Update{Out: out, X: floats([]float32{token}, 1, 1), ConvState: state, Weight: weight})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.Float64s())
	}
	// Output:
	// [1 12] <nil>
	// [123] <nil>
	// [234] <nil>
}

// Two sequences, of 3 and 2 tokens, that do not depend on each other.
func ExampleOps_VarlenForward() {
	ctx, conv, done := setUp()
	defer done()
	out, states := zeros(1, 5), zeros(2, 1, 1)
	err := conv.VarlenForward(ctx, causalconv1d.VarlenForward{
		Out: out, X: floats([]float32{1, 2, 3, 4, 5}, 1, 5), Weight: floats([]float32{10, 1}, 1, 2),
		QueryStartLoc: indices(0, 3, 5), ConvStates: states,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Float64s())
	fmt.Println(states.Float64s())
	// Output:
	// [1 12 23 4 45] <nil>
	// [3 5] <nil>
}

// The states that two packed sequences leave for decoding.
func ExampleOps_VarlenStates() {
	ctx, conv, done := setUp()
	defer done()
	states := zeros(2, 1, 3)
	err := conv.VarlenStates(ctx, causalconv1d.VarlenStates{
		States: states, X: floats([]float32{1, 2, 3, 4, 5, 6}, 6, 1), CuSeqlens: indices(0, 4, 6),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(states.Float64s())
	// Output: [2 3 4 0 5 6] <nil>
}

// Tensors in host memory. On a GPU the call copies them to the device and back in pieces; on the CPU it copies nothing.
func ExampleOps_OnHost() {
	ctx, conv, done := setUp()
	defer done()
	onHost := conv.OnHost(tensor.Host()) // of a GPU: tensor.Device{Type: tensor.CUDA} or tensor.ROCM
	out := zeros(2, 1, 3)
	err := onHost.Forward(ctx, causalconv1d.Forward{
		Out: out, X: floats([]float32{1, 2, 3, 4, 5, 6}, 2, 1, 3), Weight: floats([]float32{10, 1}, 1, 2),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Float64s())
	// Output: [1 12 23 4 45 56] <nil>
}

// setUp is the beginning of the first example.
func setUp() (context.Context, *causalconv1d.Ops, func()) {
	ctx := context.Background()
	reg, err := registry.Open(ctx, registry.Options{})
	if err != nil {
		log.Fatal(err)
	}
	conv, err := causalconv1d.New(reg)
	if err != nil {
		log.Fatal(err)
	}
	return ctx, conv, func() { _ = reg.Close() }
}

func floats(data []float32, shape ...int64) *tensor.Tensor {
	t, err := tensor.Of(data, shape...)
	if err != nil {
		log.Fatal(err)
	}
	return t
}

func zeros(shape ...int64) *tensor.Tensor {
	t, err := tensor.New(tensor.Float32, shape...)
	if err != nil {
		log.Fatal(err)
	}
	return t
}

func indices(v ...int32) *tensor.Tensor {
	t, err := tensor.Of(v, int64(len(v)))
	if err != nil {
		log.Fatal(err)
	}
	return t
}
