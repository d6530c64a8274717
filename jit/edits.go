package jit

import (
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

// snapshot is a file at one moment.
type snapshot struct {
	digest string
	stamp  string // changes with each write, even with one that restores the content
}

// snapshots are files as they were before a compiler or linker started, by path. A path in the source tree is relative.
type snapshots struct {
	w     *world
	root  string // folder of the source tree on disk, as the compiler reads it
	files map[string]snapshot
}

func newSnapshots(w *world, root string) *snapshots {
	return &snapshots{w: w, root: root, files: map[string]snapshot{}}
}

// where returns where a file is on disk.
func (s *snapshots) where(p string) string {
	if path.IsAbs(p) {
		return s.w.tc.Resolve(p)
	}
	return filepath.Join(s.root, filepath.FromSlash(p))
}

// take adds the file as it is now; one that cannot be read is left out.
func (s *snapshots) take(p string) {
	if now, err := s.look(p); err == nil {
		s.files[p] = now
	}
}

// look reads the stamp first: a file that changes between stamp and digest has another stamp the next time.
func (s *snapshots) look(p string) (snapshot, error) {
	stamp, _, err := s.w.memo.Stamp(s.where(p))
	if err != nil {
		return snapshot{}, err
	}
	digest, err := s.w.memo.Digest(s.where(p))
	return snapshot{digest, stamp}, err
}

// takeVariant adds the files of a variant.
func (s *snapshots) takeVariant(store *cache.Dir, v variant) {
	for _, digest := range []string{v.Tree, v.System} {
		if l, err := loadDeps(store, digest); err == nil {
			for _, f := range l.files {
				s.take(f.path)
			}
		}
	}
}

// Bounds of what is looked at in folders before a compile, so that data in a checkout does not delay it.
const (
	maxSnapshots    = 1000
	maxSnapshotSize = 1 << 20 // bytes
)

// takeFolder adds the files in and below a folder of the source tree, up to the bounds.
func (s *snapshots) takeFolder(dir string) {
	_ = filepath.WalkDir(s.where(dir), func(p string, e os.DirEntry, err error) error {
		switch {
		case err != nil || e.IsDir():
			return nil
		case len(s.files) >= maxSnapshots:
			return filepath.SkipAll
		}
		rel, err := filepath.Rel(s.root, p)
		info, gone := e.Info()
		if err == nil && gone == nil && info.Mode().IsRegular() && info.Size() <= maxSnapshotSize {
			s.take(filepath.ToSlash(rel))
		}
		return nil
	})
}

// ofTree returns the digests of the files in the source tree.
func (s *snapshots) ofTree() map[string]string {
	digests := map[string]string{}
	for p, f := range s.files {
		if !path.IsAbs(p) {
			digests[p] = f.digest
		}
	}
	return digests
}

// moment is the one at which a compiler or linker starts.
type moment struct {
	started instant
	known   *snapshots
}

// edited names a file that may have been written since before, so that it is not known which text the compiler read; ""
// if there is none. A file with a snapshot must be as in the snapshot. The same text is not enough: the compiler may
// have read another one in between. Of any other file the times decide, unless the clock was set back meanwhile. edited
// updates the snapshots for a second try.
func (before moment) edited(ended instant, read []string) (changed string) {
	s, setBack := before.known, ended.setBackSince(before.started)
	for _, p := range read {
		was, known := s.files[p]
		if !known && !setBack && !s.touched(p, before.started.stamp) {
			continue
		}
		now, err := s.look(p)
		if want, listed := s.w.digest(p); err != nil || listed != nil || now != was || now.digest != want {
			changed = p
		}
		s.files[p] = now
	}
	return changed
}

// touched reports whether a file was written, or put in its place, after a time. The change time counts too: the
// modification time can be set back, and is when a file is moved or unpacked.
func (s *snapshots) touched(p string, since time.Time) bool {
	info, err := os.Stat(s.where(p))
	if err != nil || !info.ModTime().Before(since) {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && !time.Unix(st.Ctim.Unix()).Before(since)
}
