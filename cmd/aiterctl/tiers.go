package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/cache"
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
	of  layer
}

// layer says what a cache is to builds.
type layer int

const (
	ownCache       layer = iota // the folder that is asked for
	temporaryCache              // in its place, where it cannot be written
	tierCache                   // of AITER_JIT_PATH
)

// caches looks at each cache folder by itself, so that one which is refused
// does not hide the others. They come in the order in which builds look at them.
func (a *app) caches(ctx context.Context) ([]tierItem, error) {
	o, err := a.cacheOptions()
	if err != nil {
		return nil, err
	}
	o.Path = nil
	var items []tierItem
	path, err := a.cacheFolder()
	store, bad := registry.OpenCache(zerolog.Nop().WithContext(ctx), o) // what it warns of is in the list
	if bad == nil && store.Path() != path && store.Writable() == nil {
		items = append(items, newTierItem(store.Path(), "read and write", temporaryCache, store, nil))
	}
	if err != nil && len(items) == 0 {
		return nil, err
	}
	if err == nil {
		o.Build = false
		store, bad = registry.OpenCache(ctx, o)
		items = append(items, newTierItem(path, "read and write", ownCache, store, bad))
	}
	for _, dir := range a.tiers() {
		t, err := cache.OpenReadOnly(dir, cache.Options{TrustForeign: o.Trust})
		items = append(items, newTierItem(dir, "read", tierCache, t, err))
	}
	return items, nil
}

func newTierItem(path, use string, of layer, d *cache.Dir, err error) tierItem {
	x := tierItem{Path: path, Use: use, Status: statusOK, err: err, of: of}
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

// checkCache looks at the cache folder, and at the one in its place, checkTiers at
// those below it.
//
// A cache that cannot be written is no failure where builds go into a temporary
// folder instead.
func (a *app) checkCache(ctx context.Context) []check {
	items, err := a.caches(ctx)
	if err != nil {
		c := check{Name: "cache", required: true}
		c.fail(err)
		return []check{c}
	}
	var list []check
	instead := ""
	if x := items[0]; x.of == temporaryCache {
		instead = x.Path
		list = append(list, x.check("temporary cache", true))
		if _, err := a.cacheFolder(); err != nil {
			c := check{Name: "cache"}
			c.fail(err)
			list = append(list, c.replaced(instead))
		}
	}
	for _, x := range items {
		if c := x.check("cache", instead == ""); x.of == ownCache && instead != "" {
			list = append(list, c.replaced(instead))
		} else if x.of == ownCache {
			list = append(list, c)
		}
	}
	return list
}

// replaced is the check of a cache in whose place builds use another folder.
func (c check) replaced(instead string) check {
	c.Status, c.err = statusWarning, nil
	c.Detail += "; what is built goes into the temporary folder " + instead
	c.Hint = "name a folder that lasts with --cache-dir DIR or AITER_JIT_DIR"
	return c
}

func (a *app) checkTiers(ctx context.Context) []check {
	items, err := a.caches(ctx)
	if err != nil {
		return nil // checkCache says so
	}
	var list []check
	for _, x := range items {
		if x.of == tierCache {
			list = append(list, x.check("cache to read", x.Status == statusFailed))
		}
	}
	return list
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
