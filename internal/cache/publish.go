package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// publishTries is how often the folder above is made again when a cleaner
// removes it, empty as it is, before the first thing lies in it.
const publishTries = 20

// publish renames a finished file or folder to its place in the cache. What blocks the
// way, such as a file in the place of a folder, is put aside.
func (d *Dir) publish(from, to string) error {
	err := rename(from, to)
	if err != nil && present(from) && d.moveObstacle(from, to) {
		err = rename(from, to)
	}
	return err
}

// moveObstacle puts aside the first thing that keeps from from being renamed to to: something
// that is no folder above to, or a folder in the place of a file and the reverse. It
// reports whether there was one.
func (d *Dir) moveObstacle(from, to string) bool {
	rel, err := filepath.Rel(d.base, to)
	if err != nil || !filepath.IsLocal(rel) {
		return false
	}
	path := d.base
	for _, name := range strings.Split(rel, string(filepath.Separator)) {
		path = filepath.Join(path, name)
		info, err := os.Lstat(path)
		if err != nil {
			return false
		}
		if wantFolder := path != to || isFolder(from); info.IsDir() != wantFolder {
			_ = d.corrupt("file", "", path, (&irregularError{path, info.Mode(), wantFolder}).Error())
			return true
		}
	}
	return false
}

// rename is os.Rename that makes the folder above to when to is the first there.
func rename(from, to string) error {
	err := os.Rename(from, to)
	for try := 0; errors.Is(err, fs.ErrNotExist) && try < publishTries && present(from); try++ {
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = os.Rename(from, to)
	}
	return err
}

// Quarantine moves something found corrupt out of the way, keeping it for
// inspection; when it cannot be kept it is removed. In a tier it stays.
func (d *Dir) Quarantine(path string) {
	if d.readOnly {
		return
	}
	dir := filepath.Join(d.base, "quarantine")
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		_ = os.Remove(dir)
	}
	_ = os.MkdirAll(dir, 0o700)
	f, err := os.MkdirTemp(dir, filepath.Base(path)+"-")
	if err == nil && os.Rename(path, filepath.Join(f, filepath.Base(path))) == nil {
		return
	}
	_ = os.RemoveAll(path)
}

// corrupt puts the entry at path aside, reports it to the observer of faults, and
// returns the miss.
func (d *Dir) corrupt(kind Kind, key, path, reason string) *MissError {
	d.Quarantine(path)
	d.reportFault(Fault{Path: path, Reason: reason})
	return &MissError{kind, key, reason}
}
