package aiterops_test

import (
	"fmt"

	"github.com/aiter-go/aiter/op_tests/aiterops"
	"github.com/aiter-go/aiter/tensor"
)

// A registry with Options.References makes this call after each call of the operator, and compares out.
func ExampleReferences() {
	x, err := tensor.Of([]float32{3, -4}, 1, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := tensor.New(tensor.Float32, 1, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	want, err := aiterops.References()["aiter_silu_and_mul"].Compute(map[string]any{"out": out, "input": x, "limit": 0.0})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.4f\n", want["out"])
	// Output: [-11.4309]
}
