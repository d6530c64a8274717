package main

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

// noneEmpty refuses a target for which a prebuilt cache would hold nothing.
func noneEmpty(reqs []jit.Request, targets []target.Target) error {
	for _, t := range targets {
		if !slices.ContainsFunc(reqs, func(r jit.Request) bool { return r.Target == t }) {
			return usagef("--output: no module supports %s, so that the folder would hold nothing for it", t)
		}
	}
	return nil
}

// outputError is what is wrong with the folder of --output; the variables that
// name other caches do not help.
type outputError struct{ err error }

// ofOutput says of an error that it is about the folder of --output.
func ofOutput(err error) error { return &outputError{err} }

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

// checkOutput refuses a folder that holds something else than a cache: it is
// made readable for all, and its owner may not think of what others see there; and,
// before anything is built, one that cannot be written.
func (a *app) checkOutput(dir string) error {
	name, err := cache.FindForeign(dir)
	if err != nil {
		return ofOutput(err)
	}
	if name != "" {
		return usagef("--output %s: expected a new or empty folder, or a cache, and it holds %s; name a new folder: --output %s", dir, name, filepath.Join(dir, "aiter"))
	}
	trust, err := a.trust()
	if err != nil {
		return err
	}
	if err := cache.Probe(dir, cache.Options{TrustForeign: trust}); err != nil {
		return ofOutput(err)
	}
	return nil
}

// export makes the cache of --output, and reads it through as a machine
// without compilers does.
func (b *buildPlan) export(ctx context.Context, results []jit.Result) error {
	var err error
	if b.output, err = filepath.Abs(b.output); err != nil {
		return err
	}
	trust, err := b.app.trust()
	if err != nil {
		return err
	}
	to, err := cache.Open(b.output, cache.Options{TrustForeign: trust})
	if err != nil {
		return ofOutput(err)
	}
	if err := errors.Join(b.manager.Export(to, results), to.MakeReadable()); err != nil {
		return ofOutput(err)
	}
	made, err := cache.OpenReadOnly(b.output, cache.Options{TrustForeign: trust})
	if err != nil {
		return ofOutput(err)
	}
	return b.manager.CheckPrebuilt(ctx, made, b.requests()...)
}
