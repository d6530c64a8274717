package cache

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Stage is the private folder of one job, on the filesystem of the cache. The job holds a
// lock on it. [Dir.Sweep] removes stages without a lock, whose jobs have died.
type Stage struct {
	Path string
	lock *os.File
}

// stageTries is how often NewStage tries again if a sweep removes its folder before it is locked.
const stageTries = 10

// NewStage makes a stage and locks it for the life of this process.
func (d *Dir) NewStage() (*Stage, error) {
	if d.readOnly {
		return nil, d.writeError()
	}
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
	err = d.flock(f, syscall.LOCK_EX)
	if err == nil && sameFile(f, path) {
		return &Stage{Path: path, lock: f}, nil
	}
	_ = os.Remove(path)
	return nil, errors.Join(err, f.Close())
}

// File returns the path of a file in the stage.
func (s *Stage) File(name string) string { return filepath.Join(s.Path, name) }

// Close removes the stage and what is left in it.
func (s *Stage) Close() error {
	return errors.Join(os.RemoveAll(s.Path), s.lock.Close())
}

// Sweep keeps files below these ages: temporary files and stages, where locks do not exclude
// other processes; lock files, so that they are not created again and again.
const (
	tempAge    = time.Hour
	lockAge    = 24 * time.Hour
	unlockable = 24 * time.Hour
)

// Sweep removes what dead jobs left behind: stages that no process has locked, temporary files,
// and old lock files. It returns their number.
func (d *Dir) Sweep() int {
	if d.readOnly {
		return 0
	}
	n := d.SweepJobs()
	n += d.sweepTemp("filehash.tmp-*", d.removeUnderMemoLock)
	n += d.sweepTemp("source/new-*", func(path string) error { return d.removeFree(path, os.RemoveAll) })
	n += d.sweepOld("lock/*", lockAge, d.removeFreeLock)
	return n
}

// SweepJobs is the part of Sweep that removes stages. It kills the processes that still work
// in them.
func (d *Dir) SweepJobs() int {
	if d.readOnly {
		return 0
	}
	stages, _ := os.ReadDir(filepath.Join(d.base, "stage"))
	if len(stages) == 0 {
		return 0
	}
	n, age := 0, time.Duration(0)
	if !d.locksExclude() {
		age = unlockable
	}
	for _, e := range stages {
		path := filepath.Join(d.base, "stage", e.Name())
		if olderThan(path, age) && d.removeFree(path, removeDead) == nil {
			n++
		}
	}
	return n
}

// removeDead kills the processes that work in the stage of a dead job, and removes the stage.
func removeDead(stage string) error {
	endOrphans(stage)
	return os.RemoveAll(stage)
}

// locksExclude reports whether locks in this folder exclude other processes. On some network
// filesystems every lock succeeds.
func (d *Dir) locksExclude() bool {
	s, err := d.NewStage()
	if err != nil {
		return false
	}
	defer s.Close()
	f, err := os.Open(s.Path)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(d.flock(f, syscall.LOCK_EX), syscall.EWOULDBLOCK)
}

// sweepTemp removes temporary files that were written under a lock, if no process holds it.
func (d *Dir) sweepTemp(pattern string, remove func(string) error) int {
	if len(d.matching(pattern)) == 0 {
		return 0
	}
	age := time.Duration(0)
	if !d.locksExclude() {
		age = tempAge
	}
	return d.sweepOld(pattern, age, remove)
}

// removeUnderMemoLock removes a file that is written under the lock of the memo of digests,
// if that lock is free.
func (d *Dir) removeUnderMemoLock(path string) error {
	f, err := openLock(d.MemoPath() + ".lock")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := d.flock(f, syscall.LOCK_EX); err != nil {
		return err
	}
	return os.Remove(path)
}

func (d *Dir) sweepOld(pattern string, age time.Duration, remove func(string) error) int {
	n := 0
	for _, path := range d.matching(pattern) {
		if olderThan(path, age) && remove(path) == nil {
			n++
		}
	}
	return n
}

// matching returns the paths of the cache whose last name matches the pattern.
// filepath.Glob would take a "[" in the name of the cache folder for a pattern.
func (d *Dir) matching(pattern string) (paths []string) {
	dir, last := filepath.Split(filepath.Join(d.base, pattern))
	entries, _ := os.ReadDir(dir) // the folder may be missing
	for _, e := range entries {
		if ok, _ := filepath.Match(last, e.Name()); ok { // a constant pattern is never bad
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

func olderThan(path string, age time.Duration) bool {
	info, err := os.Lstat(path)
	return err == nil && (age == 0 || time.Since(info.ModTime()) > age)
}

// removeFreeLock removes a lock file that no process holds. A process that has opened the
// file but not locked it notices the removal; see [Dir.Lock].
func (d *Dir) removeFreeLock(path string) error { return d.removeFree(path, os.Remove) }

// removeFree locks a file and removes it. It fails if another process holds the lock, or has
// replaced the file meanwhile.
func (d *Dir) removeFree(path string, remove func(string) error) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return os.Remove(path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := d.flock(f, syscall.LOCK_EX); err != nil {
		return err
	}
	if !sameFile(f, path) {
		return fs.ErrNotExist
	}
	return remove(path)
}
