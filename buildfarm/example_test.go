package buildfarm_test

import (
	"fmt"
	"log/slog"

	"github.com/aiter-go/aiter/buildfarm"
	"github.com/aiter-go/aiter/jit"
)

// Opening a farm makes no connection. A farm on another machine needs TLS.
func ExampleOpen() {
	for _, address := range []string{"grpcs://farm.example:8980/kernels", "grpc://farm.example:8980"} {
		_, err := buildfarm.Open(jit.ExecutorOptions{
			Address: address, Getenv: func(string) string { return "" }, Logger: slog.New(slog.DiscardHandler),
		})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// AITER_JIT_EXECUTOR is "grpc://farm.example:8980": grpc:// has no TLS and is for a farm on this machine; use grpcs://
}
