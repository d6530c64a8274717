package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeReadable sets modes so that each user can read the cache and only its owner can write. It
// removes the empty folders that only builds need. It does not change foreign files in the
// folder. It fails with [*AccessError].
func (d *Dir) MakeReadable() error {
	for _, sub := range []string{"lock", "stage", "log", "blob"} {
		_ = os.Remove(filepath.Join(d.base, sub)) // fails if the folder is not empty
	}
	errs := []error{d.makePathSearchable()}
	if tag := d.tagPath(); isOurTag(tag) {
		errs = append(errs, os.Chmod(tag, 0o644))
	}
	err := filepath.WalkDir(d.base, func(path string, e fs.DirEntry, err error) error {
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

// makePathSearchable gives all users search permission for the cache folder, and changes
// nothing else of its mode.
func (d *Dir) makePathSearchable() error {
	info, err := os.Stat(d.path)
	if err != nil || info.Mode().Perm()&0o555 == 0o555 {
		return err
	}
	return os.Chmod(d.path, info.Mode()|0o555)
}

// FindForeign returns the name of an entry in the folder at path if the folder is not a cache. It
// returns "" for a cache, an empty folder and a missing one. A cache has this package's
// CACHEDIR.TAG or folders.
func FindForeign(path string) (name string, err error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return "", nil
	}
	if err != nil {
		return "", &AccessError{path, "read", err}
	}
	d := newDir(path, Options{})
	hasFolders := IsFolder(filepath.Join(d.base, "record")) && IsFolder(filepath.Join(d.base, "artifact"))
	if isOurTag(d.tagPath()) || len(otherLayouts(path)) > 0 || hasFolders {
		return "", nil
	}
	return entries[0].Name(), nil
}

func isOurTag(path string) bool {
	text, err := readRegular(path)
	return err == nil && string(text) == tagText
}

// IsFolder reports whether path is a folder and no symlink.
func IsFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
