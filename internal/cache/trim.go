package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/internal/sys"
)

// trimEvery is the least time between two trims of a cache, of all processes together.
const trimEvery = time.Hour

// trimAges are the ages of [Dir.Trim], which runs without a request of the user.
var trimAges = ages{orphan: day, diagnostic: 7 * day, source: day}

// TrimReport is the result of [Dir.Trim].
type TrimReport struct {
	CleanReport
	Due bool // false: nothing was done, because the last trim was less than an hour ago
}

// TrimDue reports whether an hour has passed since the last trim. It costs one stat.
func (d *Dir) TrimDue() bool {
	info, err := os.Lstat(d.trimmed())
	if errors.Is(err, fs.ErrNotExist) {
		// A new cache has nothing to trim. The first trim is due in an hour.
		if f, err := os.OpenFile(d.trimmed(), os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			_ = f.Close()
		}
		return false
	}
	// A time in the future comes from a wrong clock.
	return err == nil && time.Since(info.ModTime()).Abs() >= trimEvery
}

func (d *Dir) trimmed() string { return filepath.Join(d.base, "trimmed") }

// Trim brings the cache within its [Limits]. It removes artifacts that are older than the age
// limit, then the least recently used ones until the others are within the limits, and entries
// that no artifact needs. It keeps artifacts that were used within the last hour or that a
// running process has loaded. One process at a time trims, at most once an hour; other calls
// do nothing.
//
// If locks do not exclude other processes, as on some network filesystems, the artifacts in use
// are unknown. Trim then removes nothing. A user can call [Dir.Clean].
func (d *Dir) Trim() (TrimReport, error) {
	if d.readOnly || !d.TrimDue() {
		return TrimReport{}, nil
	}
	lock, err := d.TryLock(LockRequest{Key: trimKey(), What: "trim the cache"})
	if lock == nil {
		return TrimReport{}, err
	}
	defer func() { _ = lock.Unlock() }() // the kernel unlocks it when the file is closed
	if !d.TrimDue() {
		return TrimReport{}, nil
	}
	now := time.Now()
	if err := os.Chtimes(d.trimmed(), now, now); err != nil {
		return TrimReport{}, &AccessError{d.path, "write to", err}
	}
	if !d.locksExclude() {
		return TrimReport{Due: true}, nil
	}
	rep, err := d.trim(d.limits)
	return TrimReport{rep, true}, err
}

// FreeSpace is like [Dir.Trim], for a full disk. It may run within an hour of the last trim, and
// reduces the cache to half its size, or to its limits if these are lower. Due is false if it
// removed nothing, and true if another process has trimmed meanwhile.
func (d *Dir) FreeSpace(ctx context.Context) (TrimReport, error) {
	d.TrimDue() // creates the file whose time other processes read
	start := time.Now()
	lock, err := d.Lock(ctx, LockRequest{Key: trimKey(), What: "free space in the cache", Timeout: time.Minute})
	if err != nil {
		return TrimReport{}, err
	}
	defer func() { _ = lock.Unlock() }() // the kernel unlocks it when the file is closed
	if info, err := os.Lstat(d.trimmed()); err == nil && info.ModTime().After(start) {
		return TrimReport{Due: true}, nil
	}
	if !d.excludes(lock) {
		return TrimReport{}, nil
	}
	half := d.limits
	if size := max(d.size()/2, 1); half.Size == 0 || size < half.Size {
		half.Size = size
	}
	rep, err := d.trim(half)
	now := time.Now()
	return TrimReport{rep, rep.Bytes > 0}, errors.Join(err, os.Chtimes(d.trimmed(), now, now))
}

// excludes is like [Dir.locksExclude] and tests a held lock. On a full disk no file can be
// created for the test.
func (d *Dir) excludes(held *Lock) bool {
	f, err := os.Open(held.f.Name())
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(d.flock(f, sys.Exclusive), syscall.EWOULDBLOCK)
}

func trimKey() Key {
	var l Lines
	l.Add("action", "trim")
	return l.Key()
}

// trim cleans by age, then by size and count.
func (d *Dir) trim(limits Limits) (CleanReport, error) {
	byAge := CleanRequest{OlderThan: limits.Age, ages: trimAges}
	if limits.Age == 0 {
		byAge.Match = func(Artifact) bool { return false }
	}
	var pulled CleanReport
	d.trimPulled(limits, &pulled)
	rep, err := d.Clean(byAge)
	rep.Orphans += pulled.Orphans
	rep.Bytes += pulled.Bytes
	if err != nil || limits.Size == 0 && limits.Count == 0 {
		return rep, err
	}
	idle := func(a Artifact) bool { return time.Since(a.Used).Abs() >= touchEvery }
	more, err := d.Clean(CleanRequest{Match: idle, MaxSize: limits.Size, MaxCount: limits.Count, ages: d.whenFull(limits)})
	rep.Removed = append(rep.Removed, more.Removed...)
	rep.InUse = append(rep.InUse, more.InUse...)
	rep.Orphans += more.Orphans
	rep.Bytes += more.Bytes
	return rep, err
}

// whenFull returns the ages of a trim to size limits. They are shorter if the cache exceeds its
// size.
func (d *Dir) whenFull(limits Limits) ages {
	if limits.Size > 0 && d.size() > limits.Size {
		return cleanAges
	}
	return trimAges
}
