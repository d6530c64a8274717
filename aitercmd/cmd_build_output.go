package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// checkTargetsUsed refuses a target that no request has, because the prebuilt cache
// would contain nothing for it.
func checkTargetsUsed(reqs []jit.Request, targets []target.Target) error {
	for _, t := range targets {
		if !slices.ContainsFunc(reqs, func(r jit.Request) bool { return r.Target == t }) {
			return usagef("--output: no module supports %s, so the folder would contain nothing for it", t)
		}
	}
	return nil
}

// outputError is an error of the --output folder. It has its own advice, because no
// variable names this folder.
type outputError struct{ err error }

// newOutputError marks an error as one of the --output folder.
func newOutputError(err error) error { return &outputError{err} }

func (e *outputError) Error() string {
	var access *cache.AccessError
	var foreign *cache.UntrustedError
	switch {
	case errors.As(e.err, &access):
		return fmt.Sprintf("--output: cannot %s the folder %s: %v; give another folder with --output", access.Op, access.Path, access.Err)
	case errors.As(e.err, &foreign):
		return fmt.Sprintf("--output: %s; %s; or give another folder with --output", foreign.Reason(), foreign.Advice())
	}
	return fmt.Sprintf("--output: %v", e.err)
}

func (e *outputError) Unwrap() error { return e.err }

// checkOutput refuses a folder with files that do not belong to a cache, because export
// lets all users read the folder. It also refuses a folder that cannot be written.
func (a *app) checkOutput(dir string) error {
	name, err := cache.FindForeign(dir)
	if err != nil {
		return newOutputError(err)
	}
	if name != "" {
		return usagef("--output %s: expected a new folder, an empty folder or a cache, but it contains %s; give a new folder: --output %s",
			dir, name, filepath.Join(dir, "aiter"))
	}
	o, err := a.cacheOptions()
	if err != nil {
		return err
	}
	if err := cache.Probe(dir, cache.Options{TrustForeign: o.Trust}); err != nil {
		return newOutputError(err)
	}
	return nil
}

// export writes the prebuilt cache, and checks that it serves a machine without
// compilers.
func (b *buildRun) export(ctx context.Context, results []jit.Result) error {
	var err error
	if b.output, err = filepath.Abs(b.output); err != nil {
		return err
	}
	o, err := b.app.cacheOptions()
	if err != nil {
		return err
	}
	trust := cache.Options{TrustForeign: o.Trust}
	to, err := cache.Open(b.output, trust)
	if err != nil {
		return newOutputError(err)
	}
	if err := errors.Join(b.manager.Export(to, results), to.MakeReadable()); err != nil {
		return newOutputError(err)
	}
	made, err := cache.OpenReadOnly(b.output, trust)
	if err != nil {
		return newOutputError(err)
	}
	return b.manager.CheckPrebuilt(ctx, made, b.requests()...)
}
