package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/cache"
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

// checkOutput refuses a folder that holds something else than a cache: it is
// made readable for all, and its owner may not think of what others see there.
func checkOutput(dir string) error {
	name, err := cache.Foreign(dir)
	if err != nil {
		return err
	}
	if name != "" {
		return usagef("--output %s: expected a new or empty folder, or a cache, and it holds %s; name a new folder: --output %s", dir, name, filepath.Join(dir, "aiter"))
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
	to, err := cache.Open(b.output, cache.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(b.manager.Export(to, results), to.MakeReadable()); err != nil {
		return err
	}
	made, err := cache.OpenTier(b.output, cache.Options{})
	if err != nil {
		return err
	}
	return b.manager.CheckPrebuilt(ctx, made, b.requests()...)
}
