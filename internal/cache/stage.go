package cache

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/aiter-go/aiter/internal/sys"
)

// Stage is the private folder of one job, on the filesystem of the cache. The job holds a
// lock on it. [Dir.Sweep] removes stages without a lock, whose processes have ended.
type Stage struct {
	Path string
	lock *os.File
}

// stageTries is the number of attempts of NewStage. An attempt fails if a sweep removes the
// new folder before it is locked.
const stageTries = 10

// NewStage makes a stage and locks it until Close or the end of this process. It fails with
// [*AccessError].
func (d *Dir) NewStage() (*Stage, error) {
	if d.readOnly {
		return nil, d.writeError()
	}
	d.storing()
	var err error
	for range stageTries {
		var s *Stage
		if s, err = d.tryStage(); s != nil {
			return s, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = d.remake() // another process removed the folder
		}
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
	}
	var access *AccessError
	if errors.As(err, &access) {
		return nil, access
	}
	return nil, &AccessError{d.path, "write to", cmp.Or[error](err, syscall.EBUSY)}
}

// tryStage returns nil if another process removed the new folder before it was locked. The
// error may then be nil too.
func (d *Dir) tryStage() (*Stage, error) {
	path, err := os.MkdirTemp(filepath.Join(d.base, "stage"), "job-")
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	err = d.flock(f, sys.Exclusive)
	if err == nil && sameFile(f, path) {
		return &Stage{Path: path, lock: f}, nil
	}
	_ = os.Remove(path)
	return nil, errors.Join(err, f.Close())
}

// File returns the path of a file in the stage.
func (s *Stage) File(name string) string { return filepath.Join(s.Path, name) }

// Close removes the stage with all its files.
func (s *Stage) Close() error {
	return errors.Join(os.RemoveAll(s.Path), s.lock.Close())
}
