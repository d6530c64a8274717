package jit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// Without a compiler a build uses a prebuilt artifact: that of the last build of the module
// for the target, in the cache or in a read-only cache. The build record names the toolchain
// of that build, and the include folders outside of the source tree. The lookup trusts this
// toolchain, these folders, the files outside of the source tree that were read, and the assembly
// code objects. It checks everything else: the epoch, the target, the flags and sources of the configuration, all files
// of the source tree that the compiler read, and all absent names. With a compiler a lookup
// trusts nothing.

// StalePrebuiltError reports that there is no compiler for a target, and that the prebuilt
// artifact cannot be used.
type StalePrebuiltError struct {
	Request
	Reason string // "src/a.cpp: header changed: csrc/include/aiter/cpu.h"
	Err    error  // why there is no compiler
}

func (e *StalePrebuiltError) Error() string {
	return fmt.Sprintf("the prebuilt artifact of %s cannot be used (%s), and a build is impossible: %v",
		e.Request, e.Reason, e.Err)
}

// Unwrap returns the toolchain's error.
func (e *StalePrebuiltError) Unwrap() error { return e.Err }

// noToolchain reports whether the error means that no compiler of this machine can build for the target.
func noToolchain(err error) bool {
	var missing *toolchain.NotFoundError
	var other *toolchain.UnsupportedTargetError
	var temporary *toolchain.TemporaryFolderError
	var forbidden *NoCompileError
	return errors.As(err, &missing) || errors.As(err, &other) || errors.As(err, &temporary) || errors.As(err, &forbidden)
}

// usePrebuilt fills res from an earlier build if why means that there is no toolchain. It
// returns why if there is no such build.
func (s *session) usePrebuilt(ctx context.Context, res *Result, why error) error {
	if !noToolchain(why) {
		return why
	}
	stale := ""
	for r, last := range s.m.buildRecords(res.Request) {
		reason, err := s.lookupPrebuilt(ctx, r, res, last)
		if err != nil {
			return err
		}
		if reason == "" {
			s.m.warnWrongCompiler(why, last)
			return nil
		}
		stale = reason
	}
	if stale == "" {
		return why
	}
	return &StalePrebuiltError{res.Request, stale, why}
}

// warnWrongCompiler warns once that a variable names a compiler that does not exist. Unlike
// a machine without compilers this is probably a mistake.
func (m *Manager) warnWrongCompiler(why error, last buildRecord) {
	var missing *toolchain.NotFoundError
	if !errors.As(why, &missing) || missing.Named == "" {
		return
	}
	m.mu.Lock()
	warned := m.warned[missing.Named]
	m.warned[missing.Named] = true
	m.mu.Unlock()
	if !warned {
		m.opts.Logger.Warn(missing.Named+": there is no such compiler; correct the variable, or unset it",
			"used", "the prebuilt artifact of "+last.Toolchain.Line)
	}
}

// buildRecords returns the build records of the whole module, then those of the requested
// part: first of the cache, then of its read-only caches.
func (m *Manager) buildRecords(r Request) iter.Seq2[Request, buildRecord] {
	return func(yield func(Request, buildRecord) bool) {
		for _, q := range slices.Compact([]Request{{Module: r.Module, Target: r.Target}, r}) {
			for _, data := range m.opts.Cache.GetAll(cache.BuildRecord, buildRecordKey(q)) {
				var last buildRecord
				if json.Unmarshal(data, &last) == nil && last.Toolchain.Digest != "" && !yield(q, last) {
					return
				}
			}
		}
	}
}

// lookupPrebuilt looks up the artifact of a build record with the record's toolchain and
// fills res. If the artifact cannot be used, it returns the miss in words.
func (s *session) lookupPrebuilt(ctx context.Context, r Request, res *Result, last buildRecord) (stale string, err error) {
	p, err := s.planPrebuilt(ctx, r, last)
	if err != nil {
		return "", err
	}
	c, err := p.lookup(false)
	if miss := c.firstMiss(); err != nil || miss != "" {
		return miss, err
	}
	s.observe(res.Request, Event{Step: ModuleStarted, Units: len(p.units)})
	for i, u := range p.units {
		c.units[i].Reason = "prebuilt by " + last.Toolchain.Line + ", no compiler used"
		u.observe(Event{Step: UnitHit, Status: Hit, Reason: c.units[i].Reason})
	}
	p.useCached(res, c)
	return "", nil
}

// planPrebuilt resolves a request with the toolchain of a build record.
func (s *session) planPrebuilt(ctx context.Context, r Request, last buildRecord) (*plan, error) {
	mod, err := s.m.opts.Config.Module(r.Module)
	if err != nil {
		return nil, err
	}
	p, err := s.planWith(ctx, r, mod, last.Toolchain.toolchain(r.Target), planInputs{outside: last.Outside, accepted: last.Toolchain.accepts})
	if err != nil {
		return nil, err
	}
	for _, u := range p.units {
		u.trustToolchain, u.recorded = true, func() cache.Lines { return last.Units[u.name()] }
	}
	p.link.trustToolchain, p.link.recorded = true, func() cache.Lines { return last.Link }
	return p, nil
}

// CheckPrebuilt checks that a machine without compilers can take all requests from a cache.
// It reads all artifacts completely. It fails with [*IncompleteError].
func (m *Manager) CheckPrebuilt(ctx context.Context, store *cache.Dir, reqs ...Request) error {
	opts := m.opts
	opts.Cache, opts.Finder, opts.Observer, opts.Force = store, noCompiler(notInstalled), nopObserver{}, false
	opts.Logger, opts.Source = nil, nil
	opts.Memo = filehash.Open("") // reads all files again
	results, err := New(opts).Build(ctx, reqs...)
	if err == nil {
		return nil
	}
	var missing []Request
	for _, r := range results {
		if r.Err != nil {
			missing = append(missing, r.Request)
		}
	}
	return &IncompleteError{Path: store.Path(), Missing: missing, Err: err}
}

// IncompleteError reports a prebuilt cache that lacks artifacts.
type IncompleteError struct {
	Path    string
	Missing []Request
	Err     error // of the lookups; not unwrapped, because installing a compiler does not solve it
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("the cache in %s does not hold %v as a machine without compilers needs it: %v", e.Path, e.Missing, e.Err)
}

// notInstalled returns the error of a search for a toolchain on a machine without compilers.
func notInstalled(t target.Target) error {
	return &toolchain.NotFoundError{Vendor: t.Vendor(), Looked: []string{"nowhere"}, Hint: "build it into the cache"}
}
