package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// publishTries is the number of attempts to rename a file into a new folder. An attempt fails if
// another process removes the folder while it is empty.
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

// moveObstacle moves the first obstacle to the rename into quarantine: an entry on the way to
// the path "to" that is not a folder, or an entry at that path of another type than from. It
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
		if wantFolder := path != to || IsFolder(from); info.IsDir() != wantFolder {
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
