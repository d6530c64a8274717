package aitercmd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/settings"
)

// cacheItem is a cache folder in a list.
type cacheItem struct {
	Path      string `json:"path"`
	Use       string `json:"use"`    // "read and write" or "read"
	Status    string `json:"status"` // ok, missing or failed
	Detail    string `json:"detail"` // the error
	Artifacts int    `json:"artifacts"`
	Bytes     int64  `json:"bytes"`

	err   error
	role  cacheRole
	store *cache.Dir // nil with err
}

// cacheRole is the role of a cache in builds.
type cacheRole int

const (
	ownCache       cacheRole = iota // the requested folder
	temporaryCache                  // the folder that replaces it if it cannot be written
	readOnlyCache                   // a folder of AITER_JIT_PATH
)

// caches returns the cache folders in the order of lookups. It opens each separately, so
// that an error of one does not hide the others.
func (a *app) caches() ([]cacheItem, error) {
	o, err := a.cacheOptions()
	if err != nil {
		return nil, err
	}
	readOnly := o.Path
	o.Path = nil
	var items []cacheItem
	path, err := settings.CacheDir(a.cacheDir, a.getenv)
	silent := o
	silent.Logger = nil // the list shows the warnings
	store, bad := settings.OpenCache(silent)
	if bad == nil && store.Path() != path && store.Writable() == nil {
		items = append(items, newCacheItem(store.Path(), "read and write", temporaryCache, store, nil))
	}
	if err != nil && len(items) == 0 {
		return nil, err
	}
	if err == nil {
		o.Build = false
		store, bad = settings.OpenCache(o)
		items = append(items, newCacheItem(path, "read and write", ownCache, store, bad))
	}
	for _, dir := range readOnly {
		t, err := cache.OpenReadOnly(dir, cache.Options{TrustForeign: o.Trust})
		items = append(items, newCacheItem(dir, "read", readOnlyCache, t, err))
	}
	return items, nil
}

// newCacheItem returns the list entry of a folder that was opened as d, or with an error.
func newCacheItem(path, use string, role cacheRole, d *cache.Dir, err error) cacheItem {
	x := cacheItem{Path: path, Use: use, Status: statusOK, err: err, role: role, store: d}
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

func (a *app) listCaches() error {
	items, err := a.caches()
	if err != nil {
		return err
	}
	pulled := a.pulledCaches(items)
	if a.json {
		return a.writeJSON(map[string]any{"caches": items, "pulled": pulled.Caches, "remote": pulled.Reference, "suspended": pulled.Suspended})
	}
	rows := [][]string{{"CACHE", "USE", "STATUS", "ARTIFACTS", "SIZE"}}
	for _, x := range items {
		rows = append(rows, []string{x.Path, x.Use, cmp.Or(x.Detail, x.Status), fmt.Sprint(x.Artifacts), formatSize(x.Bytes)})
	}
	return errors.Join(a.table(rows), a.printPulled(pulled))
}

// pulledCaches describes the pulled caches below the cache of builds.
func (a *app) pulledCaches(items []cacheItem) fleet.State {
	i := slices.IndexFunc(items, func(x cacheItem) bool { return x.role != readOnlyCache && x.store != nil })
	if i < 0 {
		return fleet.State{Caches: []fleet.PulledCache{}}
	}
	return fleet.ReadState(items[i].store, a.getenv)
}

// printPulled prints the pulled caches. After a fault it prints why pulls are suspended.
func (a *app) printPulled(st fleet.State) error {
	var err error
	if len(st.Caches) > 0 {
		fmt.Fprintln(a.out)
		rows := [][]string{{"PULLED FROM", "DIGEST", "SIGNED BY", "MODULE", "TARGET", "PULLED", "SIZE", "STATUS"}}
		for _, x := range st.Caches {
			rows = append(rows, []string{
				cmp.Or(x.Reference, x.Path), shortDigest(x.Digest), signerOf(x), x.Module, x.Target, x.Pulled.Local().Format(time.DateTime),
				formatSize(x.Bytes), cmp.Or(x.Refused, statusOK),
			})
		}
		err = a.table(rows)
	}
	if st.Suspended != nil {
		fmt.Fprintf(a.out, "\n%s: %s\n", st.Reference, st.Suspended)
	}
	return err
}

// signerOf returns the beginning of the ID of the key that signed a set, "(pinned)" if its reference had the digest.
func signerOf(x fleet.PulledCache) string {
	if x.Key == "" {
		return "(pinned)"
	}
	return cache.Key(x.Key).Short()
}

// shortDigest returns the beginning of a digest of OCI: "sha256:0123456789ab".
func shortDigest(digest string) string {
	kind, sum, _ := strings.Cut(digest, ":")
	return kind + ":" + cache.Key(sum).Short()
}
