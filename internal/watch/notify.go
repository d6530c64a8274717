package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/aiter-go/aiter/internal/sys"
)

// LimitError reports that the kernel watches no more folders for this user. The Watcher then
// checks files every second.
type LimitError struct {
	Sysctl string // the setting to raise
	Err    error
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the kernel watches no more folders (%v), so files are checked every second; raise the limit: sysctl %s=%d",
		e.Err, e.Sysctl, suggestedLimit)
}

// Unwrap returns the kernel's error.
func (e *LimitError) Unwrap() error { return e.Err }

// suggestedLimit is a number of watched folders that is enough for several large checkouts.
const suggestedLimit = 524288

// limitError returns the error for one of the kernel's errors about limits, nil for other errors.
func limitError(err error) *LimitError {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return &LimitError{"fs.inotify.max_user_watches", err}
	case errors.Is(err, syscall.EMFILE):
		return &LimitError{"fs.inotify.max_user_instances", err}
	}
	return nil
}

// notifier receives the kernel's events for folders.
type notifier struct {
	fs      *fsnotify.Watcher
	places  places
	watched map[string]identity
}

// identity distinguishes a folder from another one at the same path.
type identity struct{ dev, ino uint64 }

func newNotifier() (*notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &notifier{fs: w, places: places{}, watched: map[string]identity{}}, nil
}

func (n *notifier) close() error { return n.fs.Close() }

// listen requests events for all folders that matter. It must precede a check of the files,
// so that a change after the check causes an event.
func (w *Watcher) listen() {
	if w.opts.Poll > 0 {
		return
	}
	if !w.started {
		w.started = true
		n, err := newNotifier()
		if err != nil {
			w.stopEvents(err)
			return
		}
		w.notify = n
	}
	if w.notify == nil {
		return
	}
	w.mu.Lock()
	groups := slices.Collect(maps.Values(w.groups))
	w.mu.Unlock()
	for range maxLinks { // a folder may appear while its parent begins to be watched
		added, err := w.notify.watch(findPlaces(groups))
		if err != nil {
			w.stopEvents(err)
			return
		}
		if !added {
			return
		}
	}
}

// stopEvents reports the error and continues without events.
func (w *Watcher) stopEvents(err error) {
	if limit := limitError(err); limit != nil {
		err = limit
	}
	w.opts.Report(err)
	if w.notify != nil {
		_ = w.notify.close()
		w.notify = nil
	}
}

// watch replaces the watched folders by those of p. It skips missing and unreadable folders. It
// fails with an error for which limitError is not nil. added reports whether it watches a folder
// that it did not watch.
func (n *notifier) watch(p places) (added bool, err error) {
	n.places = p
	alive, under := map[string]bool{}, map[identity]string{}
	for _, dir := range n.fs.WatchList() {
		alive[dir], under[n.watched[dir]] = true, dir
	}
	for dir := range n.watched {
		if p[dir] == nil {
			_ = n.fs.Remove(dir) // fails if the folder was removed
			delete(n.watched, dir)
		}
	}
	for dir := range p {
		is, ok := identify(dir)
		if !ok || under[is] != "" {
			continue // watched already, perhaps under another name of a mount
		}
		if alive[dir] {
			_ = n.fs.Remove(dir) // another folder had this name
		}
		if err := n.fs.Add(dir); limitError(err) != nil {
			return added, err
		} else if err == nil {
			n.watched[dir], under[is], added = is, dir, true
		}
	}
	return added, nil
}

// identify returns the identity of a folder, false if it is none.
func identify(dir string) (identity, bool) {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return identity{}, false
	}
	dev, ino, _, _ := sys.Inode(info)
	return identity{dev, ino}, true
}

// errNoEvent reports that no event came within the limit.
var errNoEvent = errors.New("no event")

// await waits for at most limit for an event after which inputs may differ.
func (w *Watcher) await(ctx context.Context, limit time.Duration) error {
	var events chan fsnotify.Event
	var failures chan error
	if w.notify != nil {
		events, failures = w.notify.fs.Events, w.notify.fs.Errors
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case e := <-events:
			if w.notify.places.matter(filepath.Clean(e.Name)) {
				return nil
			}
		case <-failures:
			return nil // events were lost (ErrEventOverflow); a check compares all files anyway
		case <-w.wakeup:
			return nil
		case <-timer.C:
			return errNoEvent
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
