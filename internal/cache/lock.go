package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/internal/sys"
)

// Holder is the process that holds a lock. Waiting processes show it.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	What  string    `json:"what"` // its work, as in LockRequest
	Since time.Time `json:"since"`
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d on %s (%s, for %s)", h.PID, h.Host, h.What, time.Since(h.Since).Round(100*time.Millisecond))
}

// Lock is a held lock. The kernel releases it when the process ends.
type Lock struct {
	f     *os.File
	local chan struct{} // see Dir.localLock
}

// LockRequest describes a lock and the wait for it.
type LockRequest struct {
	Key     Key
	What    string        // the work under the lock, shown by waiting processes
	Timeout time.Duration // 0: wait until the context ends
	// Waiting, if not nil, is called when another process or goroutine holds the lock, and
	// about every ten seconds afterwards.
	Waiting func(Holder)
}

// LockTimeoutError reports a lock that did not become free within the timeout.
type LockTimeoutError struct {
	Key    Key
	What   string
	Holder Holder
	Waited time.Duration
}

func (e *LockTimeoutError) Error() string {
	return fmt.Sprintf("waited %s for the lock to %s, held by %s; end that process, or raise the timeout",
		e.Waited.Round(time.Millisecond), e.What, e.Holder)
}

const (
	firstPoll   = 2 * time.Millisecond
	longestPoll = 50 * time.Millisecond
	reportEvery = 10 * time.Second
)

// Lock gets the lock of req.Key. It waits until the lock is free, the context ends (it
// returns the context's error) or the timeout passes ([*LockTimeoutError]). Locks exclude
// goroutines of one process as well as processes.
func (d *Dir) Lock(ctx context.Context, req LockRequest) (*Lock, error) {
	w := waiter{d: d, req: req, start: time.Now()}
	local := d.localLock(req.Key)
	if err := w.lockLocal(ctx, local); err != nil {
		return nil, err
	}
	lock, err := w.poll(ctx)
	if err != nil {
		<-local
		return nil, err
	}
	lock.local = local
	return lock, nil
}

// TryLock is like [Dir.Lock] and does not wait: it returns nil, nil if another process or
// goroutine holds the lock.
func (d *Dir) TryLock(req LockRequest) (*Lock, error) {
	local := d.localLock(req.Key)
	select {
	case local <- struct{}{}:
	default:
		return nil, nil
	}
	lock, err := d.tryLock(req)
	if lock == nil {
		<-local
		return nil, err
	}
	lock.local = local
	return lock, nil
}

// localLock returns the lock of a key among the goroutines of this process: a channel with
// room for one element. A goroutine sends before it locks the file, and receives when it has
// unlocked the file.
func (d *Dir) localLock(key Key) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.localLocks == nil {
		d.localLocks = map[Key]chan struct{}{}
	}
	if d.localLocks[key] == nil {
		d.localLocks[key] = make(chan struct{}, 1)
	}
	return d.localLocks[key]
}

// waiter is one call of Lock.
type waiter struct {
	d        *Dir
	req      LockRequest
	start    time.Time
	reported time.Time
}

// lockLocal waits until no other goroutine of this process holds the lock.
func (w *waiter) lockLocal(ctx context.Context, local chan struct{}) error {
	for {
		select {
		case local <- struct{}{}:
			return nil
		default:
		}
		if err := w.check(); err != nil {
			return err
		}
		pause := time.NewTimer(w.untilCheck())
		select {
		case local <- struct{}{}:
			pause.Stop()
			return nil
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		case <-pause.C:
		}
	}
}

// untilCheck returns the time until the next report or the timeout.
func (w *waiter) untilCheck() time.Duration {
	if w.req.Timeout > 0 {
		return min(reportEvery, max(w.req.Timeout-time.Since(w.start), firstPoll))
	}
	return reportEvery
}

// poll waits until no other process holds the lock.
func (w *waiter) poll(ctx context.Context) (*Lock, error) {
	for wait := firstPoll; ; wait = min(2*wait, longestPoll) {
		lock, err := w.d.tryLock(w.req)
		if lock != nil || err != nil {
			return lock, err
		}
		if err := w.check(); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// check reports the holder every reportEvery, and fails with [*LockTimeoutError] after the
// timeout.
func (w *waiter) check() error {
	if w.req.Waiting != nil && time.Since(w.reported) >= reportEvery {
		w.reported = time.Now()
		w.req.Waiting(w.d.holder(w.req.Key))
	}
	if waited := time.Since(w.start); w.req.Timeout > 0 && waited >= w.req.Timeout {
		return &LockTimeoutError{w.req.Key, w.req.What, w.d.holder(w.req.Key), waited}
	}
	return nil
}

func (d *Dir) lockPath(key Key) string { return filepath.Join(d.base, "lock", string(key)) }

// tryLock returns nil, nil if another process holds the lock.
func (d *Dir) tryLock(req LockRequest) (*Lock, error) {
	if d.readOnly {
		return nil, d.writeError()
	}
	path := d.lockPath(req.Key)
	f, err := openLock(path)
	if errors.Is(err, fs.ErrNotExist) { // another process removed the folder
		if err := d.remake(); err != nil {
			return nil, err
		}
		f, err = openLock(path)
	}
	if err != nil && d.clearLock(path) {
		f, err = openLock(path)
	}
	if err != nil {
		return nil, &AccessError{d.path, "lock", err}
	}
	err = d.flock(f, sys.Exclusive)
	if err == nil && sameFile(f, path) {
		writeHolder(f, req.What)
		return &Lock{f: f}, nil
	}
	_ = f.Close()
	if err == nil || errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, &AccessError{d.path, "lock", err}
}

// clearLock moves the entry at the path of a lock file to quarantine if it is not a regular file. It
// reports whether there was such an entry.
func (d *Dir) clearLock(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().IsRegular() {
		return false
	}
	d.quarantineIrregular(path, &irregularError{path: path, mode: info.Mode()})
	return true
}

func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|sys.NoFollow|sys.NonBlock, 0o600)
}

// flockFile locks without waiting. It fails with [syscall.EWOULDBLOCK] if another process holds
// the lock. On a filesystem without locks it succeeds: the cache stays correct, but processes
// may repeat work.
func flockFile(f *os.File, how int) error {
	for {
		err := sys.Flock(f, how|sys.NoWait)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOLCK):
			return nil
		default:
			return err
		}
	}
}

// sameFile reports whether path names f. A lock on a file that was removed between open and
// flock excludes no process.
func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Lstat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// writeHolder writes the [Holder] for other processes. If it fails, they show no holder.
func writeHolder(f *os.File, what string) {
	host, _ := os.Hostname()
	data, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, What: what, Since: time.Now()})
	if err == nil && f.Truncate(0) == nil {
		_, _ = f.WriteAt(data, 0)
	}
}

// holder returns the holder of a lock, the zero value if it is unknown.
func (d *Dir) holder(key Key) Holder {
	var h Holder
	f, err := openRegular(d.lockPath(key))
	if err != nil {
		return h
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}

// Unlock releases the lock, even if a starting child process has a copy of the file.
func (l *Lock) Unlock() error {
	err := errors.Join(sys.Flock(l.f, sys.Unlock), l.f.Close())
	<-l.local
	return err
}
