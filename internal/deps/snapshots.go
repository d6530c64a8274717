package deps

import (
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/sys"
)

// snapshot is the state of a file at one time.
type snapshot struct {
	digest string
	stamp  string // changes with each write, even with one that restores the content
}

// Snapshots holds the states of files before a compiler started, by path. A path in the source tree is relative.
type Snapshots struct {
	view  *View
	on    Folders // on disk, as the compiler reads them
	files map[string]snapshot
}

// NewSnapshots returns an empty set of snapshots for compilers that read the source tree in the given folders.
func NewSnapshots(v *View, on Folders) *Snapshots {
	return &Snapshots{view: v, on: on, files: map[string]snapshot{}}
}

// hostPath returns the path of a file on disk.
func (s *Snapshots) hostPath(p string) string {
	if path.IsAbs(p) {
		return s.view.tc.Resolve(p)
	}
	return s.on.Path(p)
}

// Add adds the current state of a file. It ignores a file that cannot be read.
func (s *Snapshots) Add(p string) {
	if now, err := s.read(p); err == nil {
		s.files[p] = now
	}
}

// read reads the stamp first, so that a change between stamp and digest gives another stamp the next time.
func (s *Snapshots) read(p string) (snapshot, error) {
	stamp, _, err := s.view.memo.Stamp(s.hostPath(p))
	if err != nil {
		return snapshot{}, err
	}
	digest, err := s.view.memo.Digest(s.hostPath(p))
	return snapshot{digest, stamp}, err
}

// AddSet adds the files of a dependency set.
func (s *Snapshots) AddSet(store *cache.Dir, set Set) {
	for _, digest := range []string{set.Tree, set.System} {
		if l, err := Load(store, digest); err == nil {
			for _, f := range l.Files {
				s.Add(f.Path)
			}
		}
	}
}

// Limits on the files that are read before a compile, so that data files in a checkout do not delay it.
const (
	maxSnapshots    = 1000
	maxSnapshotSize = 1 << 20 // bytes
)

// AddFolder adds the files in and below a folder of the source tree, up to the limits.
func (s *Snapshots) AddFolder(dir string) {
	_ = filepath.WalkDir(s.hostPath(dir), func(p string, e os.DirEntry, err error) error {
		switch {
		case err != nil || e.IsDir():
			return nil
		case len(s.files) >= maxSnapshots:
			return filepath.SkipAll
		}
		info, gone := e.Info()
		if gone == nil && info.Mode().IsRegular() && info.Size() <= maxSnapshotSize {
			s.Add(s.on.InTree(p))
		}
		return nil
	})
}

// TreeDigests returns the digests of the files in the source tree.
func (s *Snapshots) TreeDigests() map[string]string {
	digests := map[string]string{}
	for p, f := range s.files {
		if !path.IsAbs(p) {
			digests[p] = f.digest
		}
	}
	return digests
}

// Baseline is the state of the files when a compiler starts.
type Baseline struct {
	Started   Instant
	Snapshots *Snapshots
}

// ChangedFile returns a file that may have been written since the baseline, so that the text that the compiler read is
// unknown. It returns "" if there is none. A file with a snapshot must be in the same state. Equal text is not enough,
// because the compiler may have read another text in between. Other files are compared by their times; if the clock was
// set back meanwhile, they count as written. ChangedFile updates the snapshots for the next attempt.
func (before Baseline) ChangedFile(ended Instant, read []string) (changed string) {
	s, setBack := before.Snapshots, ended.setBackSince(before.Started)
	for _, p := range read {
		was, known := s.files[p]
		if !known && !setBack && !s.touched(p, before.Started.Stamp) {
			continue
		}
		now, err := s.read(p)
		if want, listed := s.view.Digest(p); err != nil || listed != nil || now != was || now.digest != want {
			changed = p
		}
		s.files[p] = now
	}
	return changed
}

// touched reports whether a file was written or moved to its place after a time. The change time counts too, because moving
// or unpacking a file sets an earlier modification time.
func (s *Snapshots) touched(p string, since time.Time) bool {
	info, err := os.Stat(s.hostPath(p))
	if err != nil || !info.ModTime().Before(since) {
		return true
	}
	changed, ok := sys.Changed(info)
	return ok && !changed.Before(since)
}
