package jit

import (
	"os"
	"path/filepath"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/filehash"
)

// Verify is like [cache.Dir.Verify]. It also checks the memo of digests and the extracted source
// trees in the cache folder. It moves damaged ones to quarantine.
func Verify(store *cache.Dir) (cache.VerifyReport, error) {
	rep, err := store.Verify()
	if err != nil || store.Writable() != nil {
		return rep, err
	}
	report := func(path, reason string) { // reason is "" for an intact entry
		rep.Checked++
		if reason == "" {
			return
		}
		store.Quarantine(path)
		_, err := os.Lstat(path)
		rep.Faults = append(rep.Faults, cache.Fault{Path: path, Reason: "corrupt: " + reason, Kept: err == nil})
	}
	if err := filehash.Check(store.MemoPath()); err != nil {
		report(store.MemoPath(), err.Error())
	}
	trees, _ := os.ReadDir(store.SourcesPath()) // the folder may be missing
	for _, e := range trees {
		if dir := filepath.Join(store.SourcesPath(), e.Name()); deps.IsTreeName(e.Name()) {
			report(dir, deps.TreeFault(dir, e.Name()))
		}
	}
	return rep, nil
}
