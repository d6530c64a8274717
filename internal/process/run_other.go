//go:build !linux

package process

import (
	"context"

	"github.com/aiter-go/aiter/internal/sys"
)

const task = "running a compiler"

// Run fails with a [*sys.UnsupportedError].
func (c *Command) Run(context.Context) error { return sys.Unsupported(task) }

// Trace fails with an [*UntraceableError].
func (c *Command) Trace(context.Context) (*Trace, error) {
	return nil, &UntraceableError{sys.Unsupported(task)}
}
