package cache

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Probe says whether [Open] would give a cache in the folder path in which things
// can be stored, and makes nothing there that stays. It fails as Open does, and
// [Dir.Writable].
func Probe(path string, opts Options) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return &AccessError{Path: path, Op: "resolve", Err: err}
	}
	d := newDir(abs, opts)
	if isFolder(d.base) {
		if d, err = Open(abs, opts); err != nil {
			return err
		}
		return d.Writable()
	}
	at := abs
	for _, err = os.Stat(at); err != nil && at != filepath.Dir(at); _, err = os.Stat(at) {
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return &AccessError{Path: abs, Op: "make", Err: err}
		}
		at = filepath.Dir(at)
	}
	if at == abs && !opts.TrustForeign {
		if err := d.checkOwner(abs, os.Stat); err != nil {
			return err
		}
	}
	made, err := os.MkdirTemp(at, ".aiter-")
	if err != nil {
		return &AccessError{Path: abs, Op: "make", Err: err}
	}
	_ = os.Remove(made) // somebody else may have been quicker
	return nil
}
