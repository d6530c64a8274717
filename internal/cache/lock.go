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
)

// Holder is the process that holds a lock, and its work. Waiters show it.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	What  string    `json:"what"`
	Since time.Time `json:"since"`
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d on %s (%s, for %s)", h.PID, h.Host, h.What, time.Since(h.Since).Round(100*time.Millisecond))
}

// Lock is a held lock. The kernel drops it when the process dies.
type Lock struct {
	f    *os.File
	turn chan struct{} // see Dir.turn
}

// LockRequest asks for the lock named Key.
type LockRequest struct {
	Key     Key
	What    string        // the work under the lock, for waiters
	Timeout time.Duration // 0: wait as long as the context lives
	// Waiting, if not nil, is called when another process or goroutine holds the lock, and
	// then about every ten seconds.
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
	return fmt.Sprintf("waited %s for the lock to %s, held by %s; end that process, or raise the timeout", e.Waited.Round(time.Millisecond), e.What, e.Holder)
}

const (
	firstPoll   = 2 * time.Millisecond
	longestPoll = 50 * time.Millisecond
	reportEvery = 10 * time.Second
)

// Lock takes the lock named in req. It waits until the lock is free, the context ends (it
// returns the context's error) or the timeout passes ([*LockTimeoutError]). Locks exclude
// goroutines of one process as well as processes.
func (d *Dir) Lock(ctx context.Context, req LockRequest) (*Lock, error) {
	w := waiter{d: d, req: req, start: time.Now()}
	turn := d.turn(req.Key)
	if err := w.take(ctx, turn); err != nil {
		return nil, err
	}
	lock, err := w.poll(ctx)
	if err != nil {
		<-turn
		return nil, err
	}
	lock.turn = turn
	return lock, nil
}

// TryLock is like [Dir.Lock] and does not wait: it returns nil, nil if the lock is taken.
func (d *Dir) TryLock(req LockRequest) (*Lock, error) {
	turn := d.turn(req.Key)
	select {
	case turn <- struct{}{}:
	default:
		return nil, nil
	}
	lock, err := d.tryLock(req)
	if lock == nil {
		<-turn
		return nil, err
	}
	lock.turn = turn
	return lock, nil
}

// turn returns the channel on which the goroutines of this process queue for the lock of
// a key. The goroutine that can send holds the lock or polls for it.
func (d *Dir) turn(key Key) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turns == nil {
		d.turns = map[Key]chan struct{}{}
	}
	if d.turns[key] == nil {
		d.turns[key] = make(chan struct{}, 1)
	}
	return d.turns[key]
}

// waiter is one call of Lock.
type waiter struct {
	d        *Dir
	req      LockRequest
	start    time.Time
	reported time.Time
}

// take waits for the turn within this process.
func (w *waiter) take(ctx context.Context, turn chan struct{}) error {
	for {
		select {
		case turn <- struct{}{}:
			return nil
		default:
		}
		if err := w.check(); err != nil {
			return err
		}
		pause := time.NewTimer(w.patience())
		select {
		case turn <- struct{}{}:
			pause.Stop()
			return nil
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		case <-pause.C:
		}
	}
}

// patience returns the time until the next report or the timeout.
func (w *waiter) patience() time.Duration {
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

// check reports the holder from time to time, and ends the wait after the timeout.
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
	err = d.flock(f, syscall.LOCK_EX)
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

// clearLock moves anything but a file from the place of a lock file to quarantine. It reports
// whether there was something.
func (d *Dir) clearLock(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().IsRegular() {
		return false
	}
	d.quarantineIrregular(path, &irregularError{path: path, mode: info.Mode()})
	return true
}

func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
}

// flockFile locks without waiting: [syscall.EWOULDBLOCK] if the lock is taken. On a filesystem
// without locks it succeeds: the cache stays correct, but processes may repeat work.
func flockFile(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOLCK):
			return nil
		default:
			return err
		}
	}
}

// sameFile reports whether path still names f. A lock on a file that was removed between open
// and flock excludes no process.
func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Lstat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// writeHolder writes what other processes show while they wait. Its failures do not matter.
func writeHolder(f *os.File, what string) {
	host, _ := os.Hostname()
	data, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, What: what, Since: time.Now()})
	if err == nil && f.Truncate(0) == nil {
		_, _ = f.WriteAt(data, 0)
	}
}

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

// Unlock releases the lock, even while a process that is being started has a copy of the file.
func (l *Lock) Unlock() error {
	err := errors.Join(syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN), l.f.Close())
	<-l.turn
	return err
}
