package jit

import (
	"context"
	"fmt"

	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// NoCompileError means that a build would have to compile under [Options.NoCompile].
type NoCompileError struct{ Target target.Target }

func (e *NoCompileError) Error() string {
	return fmt.Sprintf("the request would have to be compiled for %s, and AITER_NO_COMPILE forbids it; "+
		"build it ahead of time (aiterctl build --arch '%s' --output DIR) and name the folder by AITER_JIT_PATH", e.Target, e.Target)
}

// neverCompiles is the Finder under [Options.NoCompile].
type neverCompiles struct{}

var _ Finder = neverCompiles{}

// Find implements [Finder].
func (neverCompiles) Find(_ context.Context, t target.Target) (*toolchain.Toolchain, error) {
	return nil, &NoCompileError{t}
}
