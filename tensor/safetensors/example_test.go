package safetensors_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/tensor/safetensors"
)

func Example() {
	weight, err := tensor.Of([]float32{1, 2, 3, 4}, 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, map[string]*tensor.Tensor{"weight": weight}); err != nil {
		log.Fatal(err)
	}
	tensors, err := safetensors.Read(&file, int64(file.Len()))
	if err != nil {
		log.Fatal(err)
	}
	values, err := tensors["weight"].Float64s()
	fmt.Println(tensors["weight"].Shape(), values, err)
	// Output: [2 2] [1 2 3 4] <nil>
}
