package jit

import (
	"maps"
	"os"
	"path"
	"syscall"
	"time"
)

// digests are the contents of files as they were before a compiler started.
type digests map[string]string

func (d digests) look(w *world, p string) {
	if digest, err := w.digest(p); err == nil {
		d[p] = digest
	}
}

// moment is the one at which a linker starts.
type moment struct {
	started instant
	known   digests // of files, as they were then
}

// ofTree returns the part that lies in the source tree.
func (d digests) ofTree() digests {
	d = maps.Clone(d)
	maps.DeleteFunc(d, func(p, _ string) bool { return path.IsAbs(p) })
	return d
}

// edited names a file that may have been written while the compiler ran, so
// that nobody knows which text it read; "" when there is none. A file whose
// content is known from before the compiler started has to have that content
// still, whatever its times are. Of any other the times decide, unless the
// clock was set back meanwhile, so that they may lie. It leaves d ready for a
// second try.
func (d digests) edited(started, ended instant, w *world, read []string) (changed string) {
	setBack := ended.setBackSince(started)
	for _, p := range read {
		if d[p] == "" && !setBack && !w.touched(p, started.stamp) {
			continue
		}
		digest, err := w.digest(p)
		if err != nil || d[p] != digest {
			changed = p
		}
		d[p] = digest
	}
	return changed
}

// touched says whether a file was written, or put in its place, after a time.
// The time of the inode's change counts too: that of the content can be set
// back, and is when a file is moved or unpacked.
func (w *world) touched(p string, since time.Time) bool {
	where, onDisk := w.tc.Resolve(p), true
	if !path.IsAbs(p) {
		where, onDisk = w.tree.Path(p)
	}
	if !onDisk {
		return false
	}
	info, err := os.Stat(where)
	if err != nil || !info.ModTime().Before(since) {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && !time.Unix(st.Ctim.Unix()).Before(since)
}
