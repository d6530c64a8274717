package jit

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
)

// listing is a digest of all names below a folder, links followed, each folder
// once.
func (w *fsView) listing(dir string) string {
	w.mu.Lock()
	known := w.listings[dir]
	w.mu.Unlock()
	if known != "" {
		return known
	}
	h := sha256.New()
	w.list(h, dir, "", map[string]bool{})
	known = hex.EncodeToString(h.Sum(nil))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listings[dir] = known
	return known
}

func (w *fsView) list(to io.Writer, dir, below string, seen map[string]bool) {
	names := w.namesOf(dir)
	if len(names) == 0 {
		return
	}
	real := w.realDir(dir)
	if seen[real] {
		return
	}
	seen[real] = true
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, _ = io.WriteString(to, path.Join(below, name)+"\x00") // a hash takes everything
		w.list(to, path.Join(dir, name), path.Join(below, name), seen)
	}
}

// realDir tells folders apart that links may give several names.
func (w *fsView) realDir(dir string) string {
	where, onDisk := w.tc.Resolve(dir), true
	if !path.IsAbs(dir) {
		where, onDisk = w.tree.Path(dir)
	}
	if real, err := filepath.EvalSymlinks(where); onDisk && err == nil {
		return real
	}
	return dir
}
