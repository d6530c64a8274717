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
	fmt.Printf("%s %v %v\n", x, x.Strides(), values)
	// Output: bfloat16[1 2 3] on cpu [6 1 2] [1 3 5 2 4 6]
}

// The example writes to a slice and reads the tensor that shares its memory.
func ExampleOf() {
	data := []float32{1, 2, 3, 4, 5, 6}
	x, err := tensor.Of(data, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	data[5] = 60
	fmt.Println(x)
	// Output: float32[2 3] on cpu [[1 2 3] [4 5 60]]
}

// The example reads the elements of a tensor of another type without a copy.
func ExampleData() {
	x, err := tensor.FromFloat64s(tensor.BFloat16, []float64{0.5, 2}, 2)
	if err != nil {
		log.Fatal(err)
	}
	halves, err := tensor.Data[tensor.BF16](x)
	if err != nil {
		log.Fatal(err)
	}
	halves[0] = tensor.F32ToBF16(3)
	fmt.Println(halves[0].Float32()*2, x)
	// Output: 6 bfloat16[2] on cpu [3 2]
}

// The example changes the shape, fills a row, and converts to another type.
func ExampleTensor_Reshape() {
	x, err := tensor.Of([]int32{1, 2, 3, 4, 5, 6})
	if err != nil {
		log.Fatal(err)
	}
	rows, err := x.Reshape(2, -1)
	if err != nil {
		log.Fatal(err)
	}
	first, err := rows.Slice(0, 0, 1)
	if err != nil {
		log.Fatal(err)
	}
	if err := first.Fill(9); err != nil {
		log.Fatal(err)
	}
	halves, err := tensor.New(tensor.Float16, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	if err := halves.CopyFrom(rows); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n%v\n", x, halves)
	// Output:
	// int32[6] on cpu
	// float16[2 3] on cpu [[9 9 9] [4 5 6]]
}
