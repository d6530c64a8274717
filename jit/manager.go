// Package jit builds the shared library of a module, or of a part of one, for a target. It
// compiles each unit that the cache lacks once, even if several processes request it. It
// uses a cached result only if a new build would give the same result.
package jit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/slots"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// epoch is a line of every key. It changes with the meaning of cached data.
const epoch = "aiter-1"

// DefaultTimeout bounds one compiler run when the module sets no other.
const DefaultTimeout = 10 * time.Minute

// Finder finds the toolchain for a target. [*toolchain.Finder] implements it.
type Finder interface {
	Find(ctx context.Context, t target.Target) (*toolchain.Toolchain, error)
}

// sessions is a Finder that examines shared files of several targets once.
type sessions interface{ Session() *toolchain.Session }

// Options of [New]. Config, Tree or Trees, Cache, Finder and Memo are required.
type Options struct {
	Config *opconfig.Config
	Tree   deps.Tree   // of a Config of one source
	Trees  []deps.Tree // of the configurations of which Config is joined, in order
	Cache  *cache.Dir
	Finder Finder
	Memo   *filehash.Memo

	Jobs        int           // compilers that run at a time; 0: [slots.DefaultJobs]
	Timeout     time.Duration // of one compiler run; 0: the module's own, else [DefaultTimeout]
	LockTimeout time.Duration // for a lock that another process holds; 0: three times the time limit of a compiler run
	Force       bool          // compile everything once, even if the cache has it
	// NoCompile uses prebuilt artifacts only, as on a machine without a compiler. Finder is
	// not called.
	NoCompile bool
	Source    Source       // of read-only caches that other machines made; nil: none
	Executor  Executor     // runs compilers and linkers on other machines; nil: they run as processes of this machine
	Observer  Observer     // nil: none
	Logger    *slog.Logger // nil: no log
}

// Manager builds modules. It is safe for use by many goroutines; any number of
// managers, in any number of processes, may share a cache folder.
type Manager struct {
	opts  Options
	slots *slots.Pool         // of compilers
	clock func() deps.Instant // deps.Now; tests replace it

	mu         sync.Mutex
	finder     Finder // of this build
	toolchains map[target.Target]*foundToolchain
	forced     map[cache.Key]bool // actions that ran under Force
	warned     map[string]bool    // variables that name no compiler and were reported

	trims   *sync.WaitGroup // running trims of the cache
	pulls   *pulls          // from Options.Source
	headers headerTrees     // of loader tables

	remote *remote // nil without Options.Executor
}

// foundToolchain is a search for a toolchain, which goroutines share.
type foundToolchain struct {
	done chan struct{} // closed when tc and err are set
	tc   *toolchain.Toolchain
	err  error
}

// New returns a manager. It opens no file.
func New(opts Options) *Manager {
	if opts.Jobs <= 0 {
		opts.Jobs = slots.DefaultJobs()
	}
	if opts.Observer == nil {
		opts.Observer = nopObserver{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.NoCompile {
		opts.Finder = noCompiler(func(t target.Target) error { return &NoCompileError{t} })
	}
	if opts.Trees == nil {
		opts.Trees = []deps.Tree{opts.Tree}
	}
	m := &Manager{
		opts:       opts,
		trims:      new(sync.WaitGroup),
		pulls:      &pulls{pulls: map[pullKey]*pull{}},
		slots:      slots.New(opts.Jobs),
		clock:      deps.Now,
		toolchains: map[target.Target]*foundToolchain{},
		forced:     map[cache.Key]bool{},
		warned:     map[string]bool{},
	}
	if m.remote = newRemote(opts.Executor, opts.Jobs); m.remote != nil {
		m.slots = slots.New(maxExecutions)
	}
	return m
}

// tree returns the source tree of a module.
func (m *Manager) tree(module string) deps.Tree {
	i := slices.IndexFunc(m.Config().Joined(), func(c *opconfig.Config) bool { return c.Has(module) })
	return m.opts.Trees[max(i, 0)]
}

// With returns a manager that builds from another configuration of the same source trees. It
// has the cache and the compiler slots of m. It fails with a [*SourcesError] if the trees are others.
func (m *Manager) With(config *opconfig.Config) (*Manager, error) {
	if before, now := sourceNames(m.Config()), sourceNames(config); !slices.Equal(before, now) {
		return nil, &SourcesError{before, now}
	}
	opts := m.opts
	opts.Config = config
	n := New(opts)
	n.slots, n.trims, n.pulls, n.remote = m.slots, m.trims, m.pulls, m.remote
	m.mu.Lock()
	defer m.mu.Unlock()
	n.forced = maps.Clone(m.forced)
	return n, nil
}

func sourceNames(c *opconfig.Config) []string {
	var names []string
	for _, one := range c.Joined() {
		names = append(names, one.Source)
	}
	return names
}

// SourcesError reports a configuration of other source trees than those of the manager.
type SourcesError struct{ Before, Now []string }

func (e *SourcesError) Error() string {
	return fmt.Sprintf("the configuration is of the sources %q, and the running program has those of %q; start the program again",
		e.Now, e.Before)
}

// Config returns the configuration the manager builds from.
func (m *Manager) Config() *opconfig.Config { return m.opts.Config }

// Cache returns the cache folder.
func (m *Manager) Cache() *cache.Dir { return m.opts.Cache }

// Memo returns the memo of files' digests.
func (m *Manager) Memo() *filehash.Memo { return m.opts.Memo }

// Roots returns the folders of the source trees. It leaves out sources that the program contains,
// which cannot change.
func (m *Manager) Roots() []string {
	var dirs []string
	for _, t := range m.opts.Trees {
		if dir, onDisk := t.Path("."); onDisk {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// toolchain finds the compiler for t. Concurrent callers share one search. A failed search
// is repeated by the next call.
func (m *Manager) toolchain(ctx context.Context, t target.Target) (*toolchain.Toolchain, error) {
	for {
		f, isNew := m.search(t)
		if isNew {
			f.tc, f.err = m.currentFinder().Find(ctx, t)
			if f.err != nil {
				m.forgetToolchain(t, f)
			}
			close(f.done)
			return f.tc, f.err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if f.err == nil || !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return f.tc, f.err
		}
		// The search was cancelled by its caller, whose context is not this one.
	}
}

// search returns the search for t. If isNew is true, the caller runs the search.
func (m *Manager) search(t target.Target) (f *foundToolchain, isNew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.toolchains[t]; f != nil {
		return f, false
	}
	f = &foundToolchain{done: make(chan struct{})}
	m.toolchains[t] = f
	return f, true
}

func (m *Manager) forgetToolchain(t target.Target, f *foundToolchain) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.toolchains[t] == f {
		delete(m.toolchains, t)
	}
}

// refresh forgets the toolchains of earlier builds, because a compiler may have been
// replaced.
func (m *Manager) refresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.toolchains)
	m.finder = m.opts.Finder
	if f, ok := m.opts.Finder.(sessions); ok {
		m.finder = f.Session()
	}
}

func (m *Manager) currentFinder() Finder {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finder == nil {
		return m.opts.Finder
	}
	return m.finder
}

// claimForced reports whether the action of a key has to run because of Force. It returns
// true once for each key.
func (m *Manager) claimForced(key cache.Key) bool {
	if !m.opts.Force {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first := !m.forced[key]
	m.forced[key] = true
	return first
}

// unclaimForced makes the next claimForced return true again, after a failed run.
func (m *Manager) unclaimForced(key cache.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.forced, key)
}
