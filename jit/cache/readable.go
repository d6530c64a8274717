package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeReadable lets every user read the cache, as those do for whom it was
// prebuilt, and leaves nobody but its owner to write. What only builds need is
// removed.
func (d *Dir) MakeReadable() error {
	for _, sub := range []string{"lock", "stage", "log", "blob"} {
		_ = os.Remove(filepath.Join(d.base, sub)) // fails when something is in it
	}
	var errs []error
	err := filepath.WalkDir(d.path, func(path string, e fs.DirEntry, err error) error {
		mode := fs.FileMode(0o644)
		if err == nil && e.IsDir() {
			mode = 0o755
		}
		if err == nil && (e.IsDir() || e.Type().IsRegular()) {
			err = os.Chmod(path, mode)
		}
		errs = append(errs, err)
		return nil
	})
	if err = errors.Join(append(errs, err)...); err != nil {
		return &AccessError{d.path, "let others read", err}
	}
	return nil
}
