package optests_test

import (
	"fmt"
	"log"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// The example checks an implementation of rms_norm: one that writes ones.
func ExampleRunner() {
	ones := func(_ string, args []any) error { return args[0].(*tensor.Tensor).Fill(1) }
	norm, err := optests.Lookup("rms_norm")
	if err != nil {
		log.Fatal(err)
	}
	results, err := optests.Runner{Call: ones}.RunCase("rms_norm", norm.Default())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(results), optests.Passed(results))
	// Output: 1 false
}
