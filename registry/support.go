package registry

import (
	"context"

	"github.com/aiter-go/aiter/jit"
)

// LoadSupport loads the support library, without which no operator can be
// called, building it where the cache does not have it. It says whether code
// for the CPU can be loaded on this machine at all. The first call of an
// operator does the same. The error is a [*BuildError] or a [*LoadError].
func (r *Registry) LoadSupport(ctx context.Context) error {
	_, _, err := r.loadSupport(ctx, r.Manager(), jit.Request{Module: supportModule, Target: hostTarget()})
	return err
}
