//go:build linux

package jit_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
)

// The build manager of a registry builds ahead of time, for any target that the machine has a compiler for.
func ExampleManager_Build() {
	ctx := context.Background()
	reg, err := registry.Open(ctx, registry.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	cpu, err := target.Parse("cpu")
	if err != nil {
		log.Fatal(err)
	}
	results, err := reg.Manager().Build(ctx, jit.Request{Module: "module_rms_norm", Target: cpu})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Request, results[0].Artifact.Ops)
	// Output: module_rms_norm for cpu [rms_norm]
}
