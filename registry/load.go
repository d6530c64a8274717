package registry

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// module is a module that was loaded for a target.
type module struct {
	support  *ffi.Support
	lib      *ffi.Module
	target   target.Target
	artifact string       // its digest
	release  func() error // lets others clean the artifact away
}

// maxLoads is how often a module is built again because another process
// cleaned it away between its build and its load.
const maxLoads = 3

// load builds the module, and the support library with the first one, and loads them.
func (r *Registry) load(ctx context.Context, m *jit.Manager, req jit.Request) (mod *module, err error) {
	for range maxLoads {
		var miss *cache.MissError
		if mod, err = r.loadOnce(ctx, m, req); !errors.As(err, &miss) {
			break
		}
	}
	return mod, err
}

func (r *Registry) loadOnce(ctx context.Context, m *jit.Manager, req jit.Request) (*module, error) {
	sup, results, err := r.loadSupport(ctx, m, req)
	if err != nil {
		return nil, err
	}
	if results == nil || r.reload != nil {
		if results, err = r.build(ctx, m, req); err != nil {
			return nil, &BuildError{Request: req, Err: err}
		}
	}
	mod, err := r.open(sup, results[0])
	if err != nil {
		return nil, err
	}
	r.ready.Store(req, struct{}{})
	if results[0].Artifact.Part == "" {
		r.ready.Store(jit.Request{Module: req.Module, Target: req.Target}, struct{}{})
	}
	return mod, nil
}

// build builds modules that are going to be loaded, and has them watched.
func (r *Registry) build(ctx context.Context, m *jit.Manager, reqs ...jit.Request) ([]jit.Result, error) {
	if r.reload != nil {
		return r.reload.watcher.Build(ctx, m, reqs...)
	}
	return m.Build(ctx, reqs...)
}

// open loads what was built.
func (r *Registry) open(sup *ffi.Support, res jit.Result) (*module, error) {
	a, err := r.hold(res.Artifact)
	if err != nil {
		return nil, &LoadError{Request: res.Request, Path: res.Artifact.Path, Err: err}
	}
	defer a.library.Close()
	lib, err := sup.Open(a.library)
	if err != nil {
		return nil, &LoadError{Request: res.Request, Path: a.Path, Err: errors.Join(err, a.release())}
	}
	return &module{support: sup, lib: lib, target: res.Target, artifact: a.Digest, release: a.release}, nil
}

// loadSupport loads the support library when nobody has, building it side by
// side with the module that needs it. It is loaded once: modules find its
// symbols by name, and two of it would not share their streams and errors. The
// results are nil when nothing was built, else the module's comes first.
func (r *Registry) loadSupport(ctx context.Context, m *jit.Manager, along jit.Request) (*ffi.Support, []jit.Result, error) {
	r.mu.Lock()
	sup := r.support
	r.mu.Unlock()
	if sup != nil {
		return sup, nil, nil
	}
	support := supportRequest()
	results, err := m.Build(ctx, along, support)
	if err != nil {
		return nil, nil, &BuildError{Request: firstFailed(results), Err: err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.calls.closed.Load():
		return nil, nil, ErrClosed // and whatever is held now would stay so
	case r.support != nil:
		return r.support, results, nil
	}
	a, err := r.hold(results[1].Artifact)
	if err != nil {
		return nil, nil, &LoadError{Request: support, Path: results[1].Artifact.Path, Err: err}
	}
	defer a.library.Close()
	sup, err = ffi.LoadSupport(a.library)
	if err != nil {
		return nil, nil, &LoadError{Request: support, Path: a.Path, Err: errors.Join(err, a.release())}
	}
	r.support, r.letSupport = sup, a.release
	r.ready.Store(support, struct{}{})
	return sup, results, nil
}

// releaseSupport lets others clean the support library's artifact away.
func (r *Registry) releaseSupport() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.letSupport == nil {
		return nil
	}
	return r.letSupport()
}

// supportRequest asks for the support library.
func supportRequest() jit.Request {
	return jit.Request{Module: supportModule, Target: hostTarget()}
}

// held is an artifact that nobody cleans away until release is called.
type held struct {
	cache.Artifact
	library *os.File // what was checked; the caller closes it
	release func() error
}

// hold marks the artifact as in use by this process, and then opens its library
// and checks the content of the open file, which is loaded afterwards.
func (r *Registry) hold(a cache.Artifact) (held, error) {
	store := r.Manager().Cache()
	release, err := store.Use(a)
	if err != nil {
		return held{}, err
	}
	checked, library, err := store.OpenArtifact(a.ID)
	if err != nil {
		return held{}, errors.Join(err, release())
	}
	return held{checked, library, release}, nil
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
