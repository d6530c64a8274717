package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/aiter-go/aiter/jit/cache"
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
func (a *app) checkCache(ctx context.Context) []check {
	items, err := a.caches(ctx)
	if err != nil {
		c := check{Name: "cache", required: true}
		c.fail(err)
		return []check{c}
	}
	return []check{items[0].check("cache", true)}
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

func (x tierItem) check(name string, required bool) check {
	c := check{Name: name, Status: statusOK, required: required}
	if x.err != nil {
		c.fail(x.err)
		c.Status = x.Status
		return c
	}
	c.Detail = fmt.Sprintf("%s (%s, %d artifacts", x.Path, sizeWords(x.Bytes), x.Artifacts)
	if c.Detail += ")"; x.Use == "read" && name == "cache" {
		c.Detail += ", only to read: what is built goes into a temporary folder"
	}
	return c
}
