package registry

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// loadedModule is the loaded library of a whole module or of one of its parts.
type loadedModule struct {
	support *ffi.Support
	lib     *ffi.Module
	target  target.Target
	digest  string       // of the artifact
	release func() error // allows other processes to remove the artifact
}

// maxLoads is the number of attempts to build and load a module. Another process may
// remove the artifact between build and load.
const maxLoads = 3

// load builds and loads the library of a part request. The first call also builds and
// loads the support library.
func (r *Registry) load(ctx context.Context, m *jit.Manager, req jit.Request) (mod *loadedModule, err error) {
	for range maxLoads {
		var miss *cache.MissError
		if mod, err = r.loadOnce(ctx, m, req); !errors.As(err, &miss) {
			break
		}
	}
	return mod, err
}

// loadOnce is one attempt of load.
func (r *Registry) loadOnce(ctx context.Context, m *jit.Manager, req jit.Request) (*loadedModule, error) {
	sup, results, err := r.loadSupport(ctx, m, req)
	if err != nil {
		return nil, err
	}
	if results == nil || r.reload != nil {
		if results, err = r.build(ctx, m, req); err != nil {
			return nil, &BuildError{Request: req, Err: err}
		}
	}
	end := r.beginLoad(ctx, results[0].Request)
	mod, err := r.open(sup, results[0])
	end(err)
	if err != nil {
		return nil, err
	}
	r.ready.Store(req, struct{}{})
	if results[0].Artifact.Part == "" {
		r.ready.Store(jit.Request{Module: req.Module, Target: req.Target}, struct{}{})
	}
	return mod, nil
}

// build builds modules that will be loaded, and watches their inputs if the registry
// reloads.
func (r *Registry) build(ctx context.Context, m *jit.Manager, reqs ...jit.Request) ([]jit.Result, error) {
	if r.reload != nil {
		return r.reload.watcher.Build(ctx, m, reqs...)
	}
	return m.Build(ctx, reqs...)
}

// open loads a built library.
func (r *Registry) open(sup *ffi.Support, res jit.Result) (*loadedModule, error) {
	a, err := r.useArtifact(res.Artifact)
	if err != nil {
		return nil, &LoadError{Request: res.Request, Path: res.Artifact.Path, Err: err}
	}
	defer a.library.Close()
	lib, err := sup.Open(a.library)
	if err != nil {
		return nil, &LoadError{Request: res.Request, Path: a.Path, Err: errors.Join(err, a.release())}
	}
	return &loadedModule{support: sup, lib: lib, target: res.Target, digest: a.Digest, release: a.release}, nil
}

// loadSupport returns the support library. The first call builds it together with req,
// and loads it. It is loaded once: modules find its symbols by name, and two copies would
// not share their streams and errors. The results are those of the build, first that of
// req; they are nil if the library was loaded already.
func (r *Registry) loadSupport(ctx context.Context, m *jit.Manager, req jit.Request) (*ffi.Support, []jit.Result, error) {
	r.mu.Lock()
	sup := r.support
	r.mu.Unlock()
	if sup != nil {
		return sup, nil, nil
	}
	support := settings.SupportRequest()
	results, err := m.Build(ctx, req, support)
	if err != nil {
		return nil, nil, &BuildError{Request: firstFailed(results), Err: err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.calls.closed.Load():
		return nil, nil, ErrClosed // else nothing would release the artifact
	case r.support != nil:
		return r.support, results, nil
	}
	a, err := r.useArtifact(results[1].Artifact)
	if err != nil {
		return nil, nil, &LoadError{Request: support, Path: results[1].Artifact.Path, Err: err}
	}
	defer a.library.Close()
	sup, err = ffi.LoadSupport(a.library)
	if err != nil {
		return nil, nil, &LoadError{Request: support, Path: a.Path, Err: errors.Join(err, a.release())}
	}
	r.support, r.releaseSupport = sup, a.release
	r.ready.Store(support, struct{}{})
	return sup, results, nil
}

// LoadSupport loads the support library, which all operators need, and builds it if the
// cache does not have it. The first call of an operator does the same. LoadSupport
// succeeds only if this machine can build and load code for the CPU. The error is a
// [*BuildError], a [*LoadError] or [ErrClosed].
func (r *Registry) LoadSupport(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	_, _, err := r.loadSupport(ctx, r.Manager(), settings.SupportRequest())
	return err
}

// releaseSupportLibrary allows other processes to remove the support library's
// artifact.
func (r *Registry) releaseSupportLibrary() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.releaseSupport == nil {
		return nil
	}
	return r.releaseSupport()
}

// usedArtifact is an artifact that no process removes until release is called.
type usedArtifact struct {
	cache.Artifact
	library *os.File // the file whose content was checked; the caller closes it
	release func() error
}

// useArtifact marks the artifact as in use by this process, then opens its library and
// checks the content of the open file. The loader maps that file.
func (r *Registry) useArtifact(a cache.Artifact) (usedArtifact, error) {
	store := r.Manager().Cache()
	release, err := store.Use(a)
	if err != nil {
		return usedArtifact{}, err
	}
	checked, library, err := store.OpenArtifact(a.ID)
	if err != nil {
		return usedArtifact{}, errors.Join(err, release())
	}
	return usedArtifact{checked, library, release}, nil
}

// BuildError reports a module that could not be built. It wraps the build manager's
// error, such as a missing compiler, compiler diagnostics, or a cache folder that cannot
// be written.
type BuildError struct {
	Request jit.Request // the first one that failed, if Err joins the errors of several
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
