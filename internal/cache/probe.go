package cache

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Probe checks that [Open] would give a writable cache in the folder path, and leaves nothing
// there. Its errors are those of Open and [Dir.Writable].
func Probe(path string, opts Options) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return &AccessError{Path: path, Op: "resolve", Err: err}
	}
	d := newDir(abs, opts)
	if hasControl(abs) {
		return &AccessError{Path: abs, Op: "use", Err: errControl}
	}
	if isFolder(d.base) {
		if d, err = Open(abs, opts); err != nil {
			return err
		}
		return d.Writable()
	}
	if _, err := d.checkTrust(); as[*UntrustedError](err) {
		return err
	}
	at := abs
	for _, err = os.Stat(at); err != nil && at != filepath.Dir(at); _, err = os.Stat(at) {
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return &AccessError{Path: abs, Op: "make", Err: err}
		}
		at = filepath.Dir(at)
	}
	made, err := os.MkdirTemp(at, ".aiter-")
	if err != nil {
		return &AccessError{Path: abs, Op: "make", Err: err}
	}
	_ = os.Remove(made) // another process may have removed it
	return nil
}
