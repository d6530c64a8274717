package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// A pulled cache is a read-only cache that a process took from a registry. It is the folder pulled/NAME
// of the cache, with a layout folder and a note of its own. A process that uses it holds a shared lock on the folder, so
// that [Dir.Trim] keeps it.

// pulledNote is the name of the file with the origin of a pulled cache.
const pulledNote = "pulled.json"

// PulledNames returns the names of the pulled caches that begin with a prefix, the last used first.
func (d *Dir) PulledNames(prefix string) []string {
	type pulled struct {
		name string
		used time.Time
	}
	var list []pulled
	for _, path := range d.matching("pulled/*") {
		name := filepath.Base(path)
		if info, err := os.Lstat(path); err == nil && info.IsDir() && strings.HasPrefix(name, prefix) {
			list = append(list, pulled{name, info.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b pulled) int { return b.used.Compare(a.used) })
	var names []string
	for _, p := range list {
		names = append(names, p.name)
	}
	return names
}

func (d *Dir) pulledPath(name string) string {
	return filepath.Join(d.base, "pulled", filepath.Base(name))
}

// OpenPulled opens a pulled cache and returns its note. The call counts as a use. It fails with [*MissError]
// if there is none, and with the errors of [OpenReadOnly]. Damage that a lookup finds in it moves it to quarantine, so that a
// later process pulls it again.
func (d *Dir) OpenPulled(name string) (t *Dir, note []byte, err error) {
	path := d.pulledPath(name)
	hold := HoldFolder(path)
	if hold == nil {
		return nil, nil, &MissError{"pulled cache", name, absent}
	}
	t, err = OpenReadOnly(path, Options{TrustForeign: d.trustForeign, Flock: d.flock, Faulty: func(f Fault) {
		d.Quarantine(path)
		d.reportFault(Fault{Path: f.Path, Reason: f.Reason + "; a later process pulls the set again"})
	}})
	if err == nil {
		t.hold = hold
		note, err = t.readOwn(filepath.Join(path, pulledNote))
	}
	if err != nil {
		return nil, nil, errors.Join(err, hold.Close())
	}
	return t, note, nil
}

// PulledCache describes a pulled cache.
type PulledCache struct {
	Name      string
	Path      string
	Note      []byte // its origin, see [Dir.PublishPulled]
	Artifacts []Artifact
	Bytes     int64     // all files
	Used      time.Time // of the last use
	Err       error     // why it cannot be used, nil if it can
}

// PulledCaches describes the pulled caches, the last used first. Unlike [Dir.OpenPulled] it counts as no use.
func (d *Dir) PulledCaches() []PulledCache {
	var list []PulledCache
	for _, name := range d.PulledNames("") {
		p := PulledCache{Name: name, Path: d.pulledPath(name)}
		info, err := os.Lstat(p.Path)
		if err != nil {
			continue // removed meanwhile
		}
		p.Used = info.ModTime()
		t, err := OpenReadOnly(p.Path, Options{TrustForeign: d.trustForeign})
		if err == nil {
			p.Note, err = t.readOwn(filepath.Join(p.Path, pulledNote))
		}
		if err == nil {
			p.Artifacts, err = t.Artifacts()
		}
		_, p.Bytes = sizeOf(p.Path)
		p.Err = err
		list = append(list, p)
	}
	return list
}

// PublishPulled makes the folder of that name in a stage a pulled cache. note is its origin. If there is one
// of that name, it stays. It fails with [*AccessError].
func (d *Dir) PublishPulled(s *Stage, folder, name string, note []byte) error {
	from := s.File(folder)
	err := writeSynced(filepath.Join(from, pulledNote), note)
	if err == nil {
		err = syncTree(from)
	}
	if err == nil {
		err = d.publish(from, d.pulledPath(name))
	}
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return &AccessError{d.path, "write to", err}
}

// syncs is the number of files that syncTree syncs at a time. Filesystems with a journal write several at once.
const syncs = 16

// syncTree syncs all files in and below a folder to the disk.
func syncTree(dir string) error {
	var group errgroup.Group
	group.SetLimit(syncs)
	walkFiles(dir, func(path string, _ fs.FileInfo) {
		group.Go(func() error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
	})
	return group.Wait()
}

// RemovePulled removes a pulled cache that no process uses.
func (d *Dir) RemovePulled(name string) error {
	return d.removeFree(d.pulledPath(name), d.removeFolder)
}

// trimPulled removes pulled caches that no process uses: those that exceed the age limit, then the least recently used
// ones until the cache is within its size. They go before artifacts, because pulling takes less time than compiling.
func (d *Dir) trimPulled(limits Limits, rep *CleanReport) {
	names := d.PulledNames("")
	slices.Reverse(names)
	for _, name := range names {
		path := d.pulledPath(name)
		idle, aged := olderThan(path, touchEvery), limits.Age > 0 && olderThan(path, limits.Age)
		if aged || idle && limits.Size > 0 && d.size() > limits.Size {
			d.dropPulled(name, rep)
		}
	}
}

// dropPulled removes a pulled cache unless a process uses it, and reports its files.
func (d *Dir) dropPulled(name string, rep *CleanReport) {
	n, size := sizeOf(d.pulledPath(name))
	if d.RemovePulled(name) == nil {
		rep.Orphans += n
		rep.Bytes += size
	}
}
