package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/jit/cache"
	"github.com/aiter-go/aiter/registry"
)

// tierItem is a cache folder in a list.
type tierItem struct {
	Path      string `json:"path"`
	Use       string `json:"use"`    // "read and write" or "read"
	Status    string `json:"status"` // ok, missing or failed
	Detail    string `json:"detail"` // what is wrong
	Artifacts int    `json:"artifacts"`
	Bytes     int64  `json:"bytes"`

	err error
}

// caches looks at each cache folder by itself, so that one which is refused
// does not hide the others.
func (a *app) caches(ctx context.Context) ([]tierItem, error) {
	path, err := a.cacheFolder()
	if err != nil {
		return nil, err
	}
	bare := *a
	bare.cachePath = ":" // none
	store, err := bare.openCache(ctx)
	items := []tierItem{newTierItem(path, "read and write", store, err)}
	for _, dir := range a.tiers() {
		t, err := cache.OpenTier(dir, cache.Options{TrustForeign: isOn(a.getenv("AITER_TRUST_JIT_DIR"))})
		items = append(items, newTierItem(dir, "read", t, err))
	}
	return items, nil
}

func newTierItem(path, use string, d *cache.Dir, err error) tierItem {
	x := tierItem{Path: path, Use: use, Status: statusOK, err: err}
	if err == nil {
		if bad := d.Writable(); bad != nil {
			x.Use = "read"
		}
		s, bad := d.Stats()
		x.Artifacts, x.Bytes, err = len(s.Artifacts), s.Bytes, bad
	}
	if x.err = err; err != nil {
		x.Status, x.Detail = statusFailed, err.Error()
	}
	if errors.Is(err, fs.ErrNotExist) {
		x.Status = statusMissing
	}
	return x
}

func (a *app) listTiers(ctx context.Context) error {
	items, err := a.caches(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(map[string]any{"tiers": items})
	}
	rows := [][]string{{"CACHE", "USE", "STATUS", "ARTIFACTS", "SIZE"}}
	for _, x := range items {
		rows = append(rows, []string{x.Path, x.Use, firstOf(x.Detail, x.Status), fmt.Sprint(x.Artifacts), sizeWords(x.Bytes)})
	}
	return a.table(rows)
}

// checkCache looks at the cache folder, checkTiers at those below it.
//
// A cache that cannot be written is no failure where builds go into a temporary
// folder instead.
func (a *app) checkCache(ctx context.Context) []check {
	items, err := a.caches(ctx)
	if err == nil {
		err = items[0].err
	}
	if err == nil && items[0].Use != "read" {
		return []check{items[0].check("cache", true)}
	}
	c := check{Name: "cache", required: true}
	instead, bad := a.openBuildCache(zerolog.Nop().WithContext(ctx)) // the build below warns
	if bad != nil {
		c.fail(cmp.Or(err, bad))
		return []check{c}
	}
	if err == nil {
		c = items[0].check("cache", true)
	} else {
		c.fail(err)
		c.err = nil
	}
	c.Status = statusWarning
	c.Detail += "; what is built goes into the temporary folder " + instead.Path()
	c.Hint = "name a folder that lasts with --cache-dir DIR or AITER_JIT_DIR"
	return []check{c}
}

func (a *app) checkTiers(ctx context.Context) []check {
	items, err := a.caches(ctx)
	if err != nil {
		return nil // checkCache says so
	}
	var list []check
	for _, x := range items[1:] {
		list = append(list, x.check("cache to read", x.Status == statusFailed))
	}
	return list
}

// openBuildCache opens the cache as builds do: see [registry.OpenCache].
func (a *app) openBuildCache(ctx context.Context) (*cache.Dir, error) {
	limits, err := a.limits()
	if err != nil {
		return nil, err
	}
	return registry.OpenCache(ctx, registry.CacheOptions{
		Dir: a.cacheDir, Limits: limits, Trust: isOn(a.getenv("AITER_TRUST_JIT_DIR")), Getenv: a.getenv, Build: true,
	})
}

func (x tierItem) check(name string, required bool) check {
	c := check{Name: name, Status: statusOK, required: required}
	if x.err != nil {
		c.fail(x.err)
		c.Status = x.Status
		return c
	}
	c.Detail = fmt.Sprintf("%s (%s, %d artifacts", x.Path, sizeWords(x.Bytes), x.Artifacts)
	if c.Detail += ")"; x.Use == "read" && name == "cache" {
		c.Detail += ", only to read"
	}
	return c
}
