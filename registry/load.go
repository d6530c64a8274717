package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/cache"
	"github.com/aiter-go/aiter/jit/target"
)

// module returns the loaded module, building and loading it first when nobody
// has. However many goroutines ask, it is done once; all get the same error.
func (r *Registry) module(ctx context.Context, req jit.Request) (*module, error) {
	return r.builds.do(ctx, req, func(ctx context.Context) (*module, error) {
		return r.load(ctx, req)
	})
}

// maxLoads is how often a module is built again because another process
// cleaned it away between its build and its load.
const maxLoads = 3

// load builds the module and the support library, and loads both.
func (r *Registry) load(ctx context.Context, req jit.Request) (mod *module, err error) {
	for range maxLoads {
		var miss *cache.MissError
		if mod, err = r.loadOnce(ctx, req); !errors.As(err, &miss) {
			break
		}
	}
	return mod, err
}

func (r *Registry) loadOnce(ctx context.Context, req jit.Request) (*module, error) {
	support := jit.Request{Module: supportModule, Target: hostTarget()}
	results, err := r.manager.Build(ctx, req, support)
	if err != nil {
		return nil, &BuildError{Request: req, Err: err}
	}
	sup, err := r.openSupport(results[1].Artifact)
	if err != nil {
		return nil, &LoadError{Request: support, Path: results[1].Artifact.Path, Err: err}
	}
	lib, err := r.openModule(sup, results[0].Artifact)
	if err != nil {
		return nil, &LoadError{Request: req, Path: results[0].Artifact.Path, Err: err}
	}
	r.ready.Store(req, struct{}{})
	if results[0].Artifact.Spec == "" {
		r.ready.Store(jit.Request{Module: req.Module, Target: req.Target}, struct{}{})
	}
	return &module{support: sup, lib: lib, target: req.Target}, nil
}

func (r *Registry) openModule(sup *ffi.Support, a cache.Artifact) (*ffi.Module, error) {
	a, err := r.hold(a)
	if err != nil {
		return nil, err
	}
	return sup.Open(a.Path)
}

func (r *Registry) openSupport(a cache.Artifact) (*ffi.Support, error) {
	a, err := r.hold(a)
	if err != nil {
		return nil, err
	}
	return ffi.LoadSupport(a.Path)
}

// hold marks the artifact as in use by this process, and then checks its
// content: from here on nobody cleans it away. The mark is never taken back,
// as the code is never unloaded.
func (r *Registry) hold(a cache.Artifact) (cache.Artifact, error) {
	store := r.manager.Cache()
	release, err := store.Use(a)
	if err != nil {
		return a, err
	}
	checked, err := store.Artifact(a.ID)
	if err != nil {
		return a, errors.Join(err, release())
	}
	return checked, nil
}

// hostTarget is the target of code that runs on the CPU.
func hostTarget() target.Target {
	t, err := target.Parse("cpu")
	if err != nil {
		return target.Target{} // "cpu" always parses
	}
	return t
}

// BuildError reports a module that could not be built. It wraps what the
// build manager says: a toolchain that was not found, a compiler's
// diagnostics, a cache folder that cannot be written.
type BuildError struct {
	Request jit.Request
	Err     error
}

func (e *BuildError) Error() string { return e.Err.Error() }

// Unwrap returns the build manager's error.
func (e *BuildError) Unwrap() error { return e.Err }

// LoadError reports a module that was built but could not be loaded.
type LoadError struct {
	Request jit.Request
	Path    string
	Err     error
}

func (e *LoadError) Error() string {
	return fmt.Sprintf("load %s from %s: %v; aiterctl doctor checks the libraries it needs", e.Request, e.Path, e.Err)
}

// Unwrap returns the loader's error.
func (e *LoadError) Unwrap() error { return e.Err }
