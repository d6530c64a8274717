package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/internal/sys"
)

// Sweep keeps files that are younger than these ages. The ages of stages and temporary files
// matter only where locks do not exclude other processes. The age of lock files keeps processes
// from creating them again and again.
const (
	stageAge = 24 * time.Hour
	tempAge  = time.Hour
	lockAge  = 24 * time.Hour
)

// Sweep removes the files of dead jobs: stages that no process has locked, temporary files, and
// old lock files. It returns their number.
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

// SweepJobs is the part of Sweep that removes stages. It kills the processes that run in them.
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
		age = stageAge
	}
	for _, e := range stages {
		path := filepath.Join(d.base, "stage", e.Name())
		if olderThan(path, age) && d.removeFree(path, removeDeadJob) == nil {
			n++
		}
	}
	return n
}

// removeDeadJob kills the processes that run in the stage of a dead job, and removes the stage.
func removeDeadJob(stage string) error {
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
	return errors.Is(d.flock(f, sys.Exclusive), syscall.EWOULDBLOCK)
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
	if err := d.flock(f, sys.Exclusive); err != nil {
		return err
	}
	return os.Remove(path)
}

// sweepOld removes the matching files that are older than age, and returns their number.
func (d *Dir) sweepOld(pattern string, age time.Duration, remove func(string) error) int {
	n := 0
	for _, path := range d.matching(pattern) {
		if olderThan(path, age) && remove(path) == nil {
			n++
		}
	}
	return n
}

// matching returns the paths in the cache whose last name matches the pattern. Unlike
// filepath.Glob it accepts a cache folder with a "[" in its name.
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
	f, err := os.OpenFile(path, os.O_RDONLY|sys.NoFollow|sys.NonBlock, 0)
	if errors.Is(err, syscall.ELOOP) {
		return os.Remove(path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := d.flock(f, sys.Exclusive); err != nil {
		return err
	}
	if !sameFile(f, path) {
		return fs.ErrNotExist
	}
	return remove(path)
}

// sweepAged removes old logs, quarantined entries, extracted source trees that no process holds,
// and the folders of older versions of this program.
func (d *Dir) sweepAged(a ages, dryRun bool, rep *CleanReport) {
	d.sweepFolder("log", a.diagnostic, dryRun, rep, os.Remove)
	d.sweepFolder("quarantine", a.diagnostic, dryRun, rep, os.RemoveAll)
	d.sweepFolder("source", a.source, dryRun, rep, func(path string) error {
		return d.removeFree(path, d.removeFolder)
	})
	d.sweepLayouts(a.diagnostic, dryRun, rep)
}

// sweepFolder removes the entries of a folder whose modification time is older than age.
func (d *Dir) sweepFolder(sub string, age time.Duration, dryRun bool, rep *CleanReport, remove func(string) error) {
	entries, _ := os.ReadDir(filepath.Join(d.base, sub)) // the folder may be missing
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		path := filepath.Join(d.base, sub, e.Name())
		n, size := sizeOf(path)
		if dryRun || remove(path) == nil {
			rep.Orphans += n
			rep.Bytes += size
		}
	}
}

// removeFolder removes a folder in one step, by a rename into a stage.
func (d *Dir) removeFolder(path string) error {
	s, err := d.NewStage()
	if err != nil {
		return err
	}
	defer s.Close()
	return os.Rename(path, s.File("removed"))
}

// HoldFolder prevents [Dir.Clean] from removing a source tree until the returned file is closed,
// and marks the tree as used. The caller must keep a reference to the file, because the garbage
// collector closes an unreferenced file. The file is nil if the folder does not exist or is
// being removed.
func HoldFolder(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDONLY|sys.OnlyFolder|sys.NoFollow, 0)
	if err != nil {
		return nil
	}
	if flockFile(f, sys.Shared) != nil || !sameFile(f, path) {
		_ = f.Close()
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now)
	return f
}
