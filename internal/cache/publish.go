package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// publishTries is how often the folder above is created again if a cleaner removes it while it
// is still empty.
const publishTries = 20

// publish renames a finished file or folder to its place in the cache. An obstacle, such as
// a file in the place of a folder, is moved to quarantine.
func (d *Dir) publish(from, to string) error {
	err := rename(from, to)
	if err != nil && present(from) && d.moveObstacle(from, to) {
		err = rename(from, to)
	}
	return err
}

// moveObstacle moves the first obstacle to a rename of from to to into quarantine: a parent of
// to that is no folder, or a folder in the place of a file and the reverse. It reports
// whether there was one.
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

// rename is like os.Rename and creates the folder above to.
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

// Quarantine moves a corrupt entry to the quarantine folder, or removes it if that fails.
// It does not change a read-only cache.
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

// corrupt moves the entry at path to quarantine, reports the fault, and returns the miss.
func (d *Dir) corrupt(kind Kind, key, path, reason string) *MissError {
	d.Quarantine(path)
	d.reportFault(Fault{Path: path, Reason: reason})
	return &MissError{kind, key, reason}
}
