package cache

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Probe checks that [Open] would return a writable cache in the folder path. It leaves no file
// there. Its errors are those of Open and [Dir.Writable].
func Probe(path string, opts Options) error {
	d, err := resolve(path, opts)
	if err != nil {
		return err
	}
	if IsFolder(d.base) {
		if d, err = Open(d.path, opts); err != nil {
			return err
		}
		return d.Writable()
	}
	if _, err := d.checkTrust(); as[*UntrustedError](err) {
		return err
	}
	above := d.path // the first folder on the way up that exists
	for _, err = os.Stat(above); err != nil && above != filepath.Dir(above); _, err = os.Stat(above) {
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return &AccessError{Path: d.path, Op: "make", Err: err}
		}
		above = filepath.Dir(above)
	}
	made, err := os.MkdirTemp(above, ".aiter-")
	if err != nil {
		return &AccessError{Path: d.path, Op: "make", Err: err}
	}
	_ = os.Remove(made) // another process may have removed it
	return nil
}
