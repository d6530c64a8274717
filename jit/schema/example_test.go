package schema_test

import (
	"fmt"
	"log"

	"github.com/aiter-go/aiter/jit/schema"
)

func ExampleParse() {
	s, err := schema.Parse("scale(Tensor(a!) out, Tensor x, float factor=2.0) -> ()")
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range s.Args {
		fmt.Println(a.Name, a.Type, a.Type.Mutable, a.Default != nil)
	}
	// Output:
	// out Tensor(a!) true false
	// x Tensor false false
	// factor float false true
}
