//go:build linux

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// A service builds before its first request. With a GPU, reg.Devices().Default() names it.
func ExampleRegistry_Warm() {
	ctx := context.Background()
	reg, err := registry.Open(ctx, registry.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	dev := tensor.Host()
	fmt.Println(reg.Ready(dev, "rms_norm"))
	if err := reg.Warm(ctx, dev, "rms_norm"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(reg.Ready(dev, "rms_norm"))
	// Output:
	// false
	// true
}

// Arguments that an operator refuses are errors that name the argument.
func ExampleOp_Call() {
	ctx := context.Background()
	reg, err := registry.Open(ctx, registry.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	norm, err := reg.Lookup("rms_norm")
	if err != nil {
		log.Fatal(err)
	}
	x, err := tensor.Of([]float32{3, 4}, 1, 2)
	if err != nil {
		log.Fatal(err)
	}
	out, err := tensor.New(tensor.Float32, 1, 2)
	if err != nil {
		log.Fatal(err)
	}
	weight, err := tensor.Of([]float32{1, 1, 1})
	if err != nil {
		log.Fatal(err)
	}
	var refused *registry.ArgumentError
	if err := norm.Call(ctx, out, x, weight, 1e-6); errors.As(err, &refused) {
		fmt.Println(refused)
	}
	// Output: rms_norm: argument 'weight': expected shape (D) with D = 2, got (3)
}

// A recorder has the timeline of calls. WriteChrome writes it for Perfetto.
func ExampleOptions_trace() {
	ctx := context.Background()
	rec := trace.New(trace.Options{})
	reg, err := registry.Open(ctx, registry.Options{Trace: rec})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	norm, err := reg.Lookup("rms_norm")
	if err != nil {
		log.Fatal(err)
	}
	x, err := tensor.Of([]float32{3, 4}, 1, 2)
	if err != nil {
		log.Fatal(err)
	}
	out, err := tensor.New(tensor.Float32, 1, 2)
	if err != nil {
		log.Fatal(err)
	}
	weight, err := tensor.Of([]float32{1, 1})
	if err != nil {
		log.Fatal(err)
	}
	if err := reg.Warm(ctx, tensor.Host(), "rms_norm"); err != nil {
		log.Fatal(err)
	}
	rec.Reset() // without the build
	if err := norm.Call(ctx, out, x, weight, 1e-6); err != nil {
		log.Fatal(err)
	}
	for _, span := range rec.Timeline().Spans {
		switch span.Kind {
		case trace.Call, trace.Launch, trace.Kernel:
			fmt.Println(span.Title(), span.Device)
		}
	}
	// Output:
	// call rms_norm cpu
	// launch rms_norm cpu
	// kernel rms_norm cpu
}
