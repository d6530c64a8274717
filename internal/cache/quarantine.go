package cache

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// sweepKept removes old logs, quarantined entries, source trees that no process holds, and
// entries of older versions.
func (d *Dir) sweepKept(a ages, dryRun bool, rep *CleanReport) {
	d.sweepFolder("log", a.kept, dryRun, rep, os.Remove)
	d.sweepFolder("quarantine", a.kept, dryRun, rep, os.RemoveAll)
	d.sweepFolder("source", a.source, dryRun, rep, func(path string) error {
		return d.removeFree(path, d.removeFolder)
	})
	d.sweepLayouts(a.kept, dryRun, rep)
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
		n, size := weigh(path)
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

// weigh counts the regular files at or below path, and their bytes.
func weigh(path string) (n int, size int64) {
	walkFiles(path, func(_ string, info fs.FileInfo) {
		n++
		size += info.Size()
	})
	return n, size
}

// HoldFolder protects a source tree from cleaning until the returned file is closed, and
// marks the tree as used. The caller must keep the file, because the garbage collector
// closes an unreferenced one. The file is nil if the folder does not exist or is being
// cleaned away.
func HoldFolder(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	if flockFile(f, syscall.LOCK_SH) != nil || !sameFile(f, path) {
		_ = f.Close()
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now)
	return f
}
