// Package watch reports changes of a build's inputs: the sources, the headers that were
// read, absent names, and the configuration. It compares contents. Events of the kernel only
// start a comparison, so that a lost event only delays the report.
package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit"
)

// Defaults of [Options].
const (
	DefaultSettle = 30 * time.Millisecond
	DefaultEvery  = 10 * time.Second
)

// Options of [New]. The zero value is usable.
type Options struct {
	Memo   *filehash.Memo // remembers digests of files; nil: a new one
	Settle time.Duration  // time without events before a change counts, because editors write in several steps; 0: [DefaultSettle]
	Every  time.Duration  // time between checks without events, for filesystems that send none; 0: [DefaultEvery]
	Poll   time.Duration  // above 0: time between checks, without events
	Report func(error)    // receives a [*LimitError], after which files are checked every second; nil: none
}

// Change is a file that differs from the one that the last build read.
type Change struct {
	Path string        `json:"path"`
	What string        `json:"what"` // "changed", "appeared" or "gone"
	For  []jit.Request `json:"-"`    // the builds that read it; the zero Request is the configuration
}

// The values of [Change.What].
const (
	Changed  = "changed"
	Appeared = "appeared"
	Gone     = "gone"
)

// maxSettles bounds the wait for the end of changes, in multiples of Options.Settle.
const maxSettles = 30

// Watcher watches the inputs of builds. Its methods may be called from any goroutine, but Next
// only from one at a time.
type Watcher struct {
	opts   Options
	wakeup chan struct{} // receives an element when the set of inputs changes

	mu     sync.Mutex
	groups map[jit.Request]*group

	notify  *notifier // used by Next only; nil before its first call, and without events
	started bool      // newNotifier was called
}

// group holds the inputs of one build. It is immutable.
type group struct {
	known   contents // as the build read them
	globs   []jit.Glob
	folders []string
}

// New returns a watcher without inputs.
func New(opts Options) *Watcher {
	if opts.Memo == nil {
		opts.Memo = filehash.Open("")
	}
	if opts.Report == nil {
		opts.Report = func(error) {}
	}
	opts.Settle = cmp.Or(opts.Settle, DefaultSettle)
	opts.Every = cmp.Or(opts.Every, DefaultEvery)
	return &Watcher{opts: opts, wakeup: make(chan struct{}, 1), groups: map[jit.Request]*group{}}
}

// Set replaces the inputs of a request. Inputs that already differ are reported by the
// next call of Next. The zero Request stands for the configuration.
func (w *Watcher) Set(r jit.Request, in jit.Inputs) {
	g := &group{known: contents{}, globs: in.Globs, folders: in.Folders}
	for _, glob := range in.Globs {
		for _, match := range glob.Matches {
			g.known[globbed(glob, match)] = present
		}
	}
	for path, sum := range in.Files {
		g.known[path] = sum
	}
	w.mu.Lock()
	w.groups[r] = g
	w.mu.Unlock()
	w.wake()
}

// Forget stops watching for a build.
func (w *Watcher) Forget(r jit.Request) {
	w.mu.Lock()
	delete(w.groups, r)
	w.mu.Unlock()
	w.wake()
}

// wake makes Next compare the inputs.
func (w *Watcher) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default: // it has an element already
	}
}

// Next waits until files differ from those that the builds read, and have stopped changing. It
// returns the changes sorted by path; the next call compares with the changed files. The error
// is the context's.
func (w *Watcher) Next(ctx context.Context) ([]Change, error) {
	for {
		w.listen()
		if len(w.compare(false)) > 0 {
			if err := w.settle(ctx); err != nil {
				return nil, err
			}
			if changes := w.compare(true); len(changes) > 0 {
				return changes, nil
			}
			continue // the change was undone
		}
		if err := w.await(ctx, w.every()); err != nil && !errors.Is(err, errNoEvent) {
			return nil, err
		}
	}
}

// every returns the time between checks of the files without an event.
func (w *Watcher) every() time.Duration {
	switch {
	case w.opts.Poll > 0:
		return w.opts.Poll
	case w.notify == nil:
		return min(time.Second, w.opts.Every)
	}
	return w.opts.Every
}

// settle waits until no event comes for Options.Settle.
func (w *Watcher) settle(ctx context.Context) error {
	for end := time.Now().Add(maxSettles * w.opts.Settle); time.Now().Before(end); {
		err := w.await(ctx, w.opts.Settle)
		if errors.Is(err, errNoEvent) {
			return nil
		}
		if err != nil {
			return err
		}
		w.listen() // includes new folders
	}
	return nil
}

// compare checks all inputs and returns the changes. With accept, later calls compare with the
// present inputs.
func (w *Watcher) compare(accept bool) []Change {
	w.mu.Lock()
	groups := maps.Clone(w.groups)
	w.mu.Unlock()
	scan := newScan(w.opts.Memo)
	found := map[string]*Change{}
	for r, g := range groups {
		now := scan.group(g)
		for path, what := range differences(g.known, now) {
			if found[path] == nil {
				found[path] = &Change{Path: path, What: what}
			}
			found[path].For = append(found[path].For, r)
		}
		if accept {
			w.accept(r, g, now)
		}
	}
	var out []Change
	for _, path := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[path])
	}
	return out
}

// accept replaces the known contents of a group by the present ones, unless a build has replaced
// the group.
func (w *Watcher) accept(r jit.Request, g *group, now contents) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.groups[r] == g {
		w.groups[r] = &group{known: now, globs: g.globs, folders: g.folders}
	}
}

// Close stops watching. Next must have returned.
func (w *Watcher) Close() error {
	if w.notify == nil {
		return nil
	}
	n := w.notify
	w.notify = nil
	return n.close()
}
