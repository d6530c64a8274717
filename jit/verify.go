package jit

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aiter-go/aiter/internal/cache"
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
		if dir := filepath.Join(store.SourcesPath(), e.Name()); isLaidOut(e.Name()) {
			note(dir, wrongTree(dir, e.Name()))
		}
	}
	return rep, nil
}

// isLaidOut reports whether a folder of that name holds a laid-out tree, rather than one
// that is being written.
func isLaidOut(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == treeNameSize
}

// wrongTree returns what is wrong with the laid-out tree in dir, "" when nothing is.
func wrongTree(dir, name string) string {
	if !isFolder(dir) {
		return "it is no folder"
	}
	digest, err := treeDigest(os.DirFS(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "" // removed meanwhile
	case err != nil:
		return err.Error()
	case digest[:treeNameSize] != name:
		return "its files have the digest " + digest[:treeNameSize]
	}
	return ""
}
