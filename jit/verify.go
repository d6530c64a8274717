package jit

import (
	"os"
	"path/filepath"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/filehash"
)

// Verify is [cache.Dir.Verify], and checks in the cache itself what this package keeps
// there as well: remembered digests and laid-out source trees.
func Verify(store *cache.Dir) (cache.VerifyReport, error) {
	rep, err := store.Verify()
	if err != nil || store.Writable() != nil {
		return rep, err
	}
	note := func(path, reason string) {
		rep.Checked++
		if reason == "" {
			return
		}
		store.Quarantine(path)
		_, err := os.Lstat(path)
		rep.Faults = append(rep.Faults, cache.Fault{Path: path, Reason: "corrupt: " + reason, Kept: err == nil})
	}
	if err := filehash.Check(store.MemoPath()); err != nil {
		note(store.MemoPath(), err.Error())
	}
	trees, _ := os.ReadDir(store.SourcesPath()) // there need be none
	for _, e := range trees {
		if dir := filepath.Join(store.SourcesPath(), e.Name()); deps.IsTreeName(e.Name()) {
			note(dir, deps.TreeFault(dir, e.Name()))
		}
	}
	return rep, nil
}
