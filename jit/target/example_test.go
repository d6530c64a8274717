package target_test

import (
	"fmt"
	"log"

	"github.com/aiter-go/aiter/jit/target"
)

func ExampleParseList() {
	targets, err := target.ParseList("gfx942,sm_90a;cpu")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range targets {
		fmt.Println(t, t.Vendor())
	}
	// Output:
	// gfx942 hip
	// sm_90a cuda
	// cpu cpu
}
