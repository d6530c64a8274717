package otelaiter_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/otelaiter"
)

// A registry with Options{Observer: observer} sends the operations. The example sends one itself.
func Example() {
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	observer, err := otelaiter.New(otelaiter.Options{TracerProvider: provider, Calls: true})
	if err != nil {
		log.Fatal(err)
	}
	if tracer, ok := observer.(jit.Tracer); ok {
		_, end := tracer.Begin(context.Background(), jit.Compiling, jit.Event{Module: "module_x", Target: "gfx942", Source: "src/a.hip"})
		end(jit.Event{Status: jit.Compiled})
	}
	for _, span := range recorder.Ended() {
		fmt.Println(span.Name())
		for _, a := range span.Attributes() {
			fmt.Println(a.Key, a.Value.String())
		}
	}
	// Output:
	// aiter.compile
	// aiter.module module_x
	// aiter.arch gfx942
	// aiter.unit src/a.hip
	// aiter.status compiled
}
