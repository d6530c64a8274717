package aitercmd_test

import (
	"context"
	"fmt"
	"os"
	"testing/fstest"

	"github.com/aiter-go/aiter/aitercmd"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// A program runs the command line "list ops". A real program calls Main instead of Run and has its files in an embed.FS.
func ExampleProgram_Run() {
	program := aitercmd.Program{
		Name:      "myctl",
		NoBuiltin: true,
		Modules: []registry.Source{{Name: "example.com/ops", Files: fstest.MapFS{
			"opt_compiler.toml": {Data: []byte(`
[module.module_double]
[[module.module_double.source]]
path = "double.cpp"
[[module.module_double.op]]
name   = "double"
doc    = "out = 2 * x"
schema = "(Tensor(a!) out, Tensor x) -> ()"
`)},
			"double.cpp": {Data: []byte("...")},
		}}},
		Operators: []optests.Operator{double()},
	}
	code := program.Run(context.Background(), []string{"list", "ops"}, nil, os.Stdout, os.Stderr)
	fmt.Println("exit code", code)
	// Output:
	// OPERATOR  MODULE         DESCRIPTION
	// double    module_double  out = 2 * x
	// exit code 0
}

// double declares the cases and the reference of the operator for test and bench.
func double() optests.Operator {
	x := optests.TensorArg{DType: tensor.Float32, Shape: []int64{4, 1024}}
	return optests.Operator{
		Name:  "double",
		Cases: []optests.Call{{Name: "small", Args: map[string]any{"out": x, "x": x}}},
		Reference: func(in optests.Inputs) map[string][]float64 {
			out := make([]float64, len(in.Values["x"]))
			for i, v := range in.Values["x"] {
				out[i] = 2 * v
			}
			return map[string][]float64{"out": out}
		},
	}
}
