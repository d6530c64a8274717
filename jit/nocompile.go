package jit

import (
	"context"
	"fmt"

	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// NoCompileError reports a request under [Options.NoCompile] for which no cache has an artifact.
type NoCompileError struct{ Target target.Target }

func (e *NoCompileError) Error() string {
	return fmt.Sprintf("the request would have to be compiled for %s, and AITER_NO_COMPILE forbids it; "+
		"build it ahead of time (aiterctl build --all --arch '%s' --output DIR) and list the folder in AITER_JIT_PATH", e.Target, e.Target)
}

// noCompiler is a Finder that finds no toolchain. It returns the error for a target.
type noCompiler func(target.Target) error

var _ Finder = noCompiler(nil)

// Find implements [Finder].
func (n noCompiler) Find(_ context.Context, t target.Target) (*toolchain.Toolchain, error) {
	return nil, n(t)
}
