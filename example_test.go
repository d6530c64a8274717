package aiter_test

import (
	"fmt"
	"io/fs"
	"log"
	"strings"

	"github.com/aiter-go/aiter"
)

// A program contains the sources of its operators.
func Example() {
	text, err := fs.ReadFile(aiter.Sources, "config/opt_compiler.toml")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(string(text), "[module.module_rms_norm]"))
	// Output: true
}
