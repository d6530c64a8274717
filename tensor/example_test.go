package tensor_test

import (
	"fmt"
	"log"

	"github.com/aiter-go/aiter/tensor"
)

// The example views channel-last memory in the order of channel-first, as operators expect it.
func ExampleTensor_Transpose() {
	rows, err := tensor.FromFloat64s(tensor.BFloat16, []float64{1, 2, 3, 4, 5, 6}, 1, 3, 2) // batch, seqlen, dim
	if err != nil {
		log.Fatal(err)
	}
	x, err := rows.Transpose(1, 2) // batch, dim, seqlen
	if err != nil {
		log.Fatal(err)
	}
	values, err := x.Float64s()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x, x.Strides(), values)
	// Output: bfloat16[1 2 3] on cpu [6 1 2] [1 3 5 2 4 6]
}
