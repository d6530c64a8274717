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
	view  *fsView
	root  string // folder of the source tree on disk, as the compiler reads it
	files map[string]snapshot
}

func newSnapshots(w *fsView, root string) *snapshots {
	return &snapshots{view: w, root: root, files: map[string]snapshot{}}
}

// hostPath returns where a file is on disk.
func (s *snapshots) hostPath(p string) string {
	if path.IsAbs(p) {
		return s.view.tc.Resolve(p)
	}
	return filepath.Join(s.root, filepath.FromSlash(p))
}

// add adds the file as it is now; one that cannot be read is left out.
func (s *snapshots) add(p string) {
	if now, err := s.read(p); err == nil {
		s.files[p] = now
	}
}

// read reads the stamp first: a file that changes between stamp and digest has another stamp the next time.
func (s *snapshots) read(p string) (snapshot, error) {
	stamp, _, err := s.view.memo.Stamp(s.hostPath(p))
	if err != nil {
		return snapshot{}, err
	}
	digest, err := s.view.memo.Digest(s.hostPath(p))
	return snapshot{digest, stamp}, err
}

// addDepSet adds the files of a variant.
func (s *snapshots) addDepSet(store *cache.Dir, v depSet) {
	for _, digest := range []string{v.Tree, v.System} {
		if l, err := loadDeps(store, digest); err == nil {
			for _, f := range l.files {
				s.add(f.path)
			}
		}
	}
}

// Bounds of what is looked at in folders before a compile, so that data in a checkout does not delay it.
const (
	maxSnapshots    = 1000
	maxSnapshotSize = 1 << 20 // bytes
)

// addFolder adds the files in and below a folder of the source tree, up to the bounds.
func (s *snapshots) addFolder(dir string) {
	_ = filepath.WalkDir(s.hostPath(dir), func(p string, e os.DirEntry, err error) error {
		switch {
		case err != nil || e.IsDir():
			return nil
		case len(s.files) >= maxSnapshots:
			return filepath.SkipAll
		}
		rel, err := filepath.Rel(s.root, p)
		info, gone := e.Info()
		if err == nil && gone == nil && info.Mode().IsRegular() && info.Size() <= maxSnapshotSize {
			s.add(filepath.ToSlash(rel))
		}
		return nil
	})
}

// treeDigests returns the digests of the files in the source tree.
func (s *snapshots) treeDigests() map[string]string {
	digests := map[string]string{}
	for p, f := range s.files {
		if !path.IsAbs(p) {
			digests[p] = f.digest
		}
	}
	return digests
}

// baseline is the one at which a compiler or linker starts.
type baseline struct {
	started instant
	files   *snapshots
}

// changedFile names a file that may have been written since before, so that it is not known which text the compiler read; ""
// if there is none. A file with a snapshot must be as in the snapshot. The same text is not enough: the compiler may
// have read another one in between. Of any other file the times decide, unless the clock was set back meanwhile. edited
// updates the snapshots for a second try.
func (before baseline) changedFile(ended instant, read []string) (changed string) {
	s, setBack := before.files, ended.setBackSince(before.started)
	for _, p := range read {
		was, known := s.files[p]
		if !known && !setBack && !s.touched(p, before.started.stamp) {
			continue
		}
		now, err := s.read(p)
		if want, listed := s.view.digest(p); err != nil || listed != nil || now != was || now.digest != want {
			changed = p
		}
		s.files[p] = now
	}
	return changed
}

// touched reports whether a file was written, or put in its place, after a time. The change time counts too: the
// modification time can be set back, and is when a file is moved or unpacked.
func (s *snapshots) touched(p string, since time.Time) bool {
	info, err := os.Stat(s.hostPath(p))
	if err != nil || !info.ModTime().Before(since) {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && !time.Unix(st.Ctim.Unix()).Before(since)
}
