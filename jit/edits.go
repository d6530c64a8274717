package jit

import (
	"maps"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// digests are the contents of files as they were before a compiler started.
type digests map[string]string

func (d digests) look(w *world, p string) {
	if digest, err := w.digest(p); err == nil {
		d[p] = digest
	}
}

// ofTree returns the part that lies in the source tree.
func (d digests) ofTree() digests {
	d = maps.Clone(d)
	maps.DeleteFunc(d, func(p, _ string) bool { return path.IsAbs(p) })
	return d
}

// fileClock is the time with which the kernel stamps files now: that of its
// last tick, some milliseconds behind the clock.
func fileClock() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now().Add(-10 * time.Millisecond)
	}
	return time.Unix(ts.Unix())
}

// nextTick waits until the kernel stamps files with a new time, and returns
// it: what was written before has an earlier one.
func nextTick() time.Time {
	before := fileClock()
	for range 100 {
		time.Sleep(time.Millisecond)
		if now := fileClock(); now.After(before) {
			return now
		}
	}
	return fileClock() // it stands still, or was set back
}

// edited names a file that may have been written while the compiler ran, so
// that nobody knows which text it read (since started, by the fileClock); ""
// when there is none. Times only
// point to such files: one whose content is known from before the compiler
// started, and still the same, is believed. It leaves d ready for a second try.
func (d digests) edited(started time.Time, w *world, read []string) (changed string) {
	for _, p := range read {
		if !w.touched(p, started) {
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
