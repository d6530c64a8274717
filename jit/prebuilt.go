package jit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// Where no compiler for a target is found, or may be used, nothing can be built again, and what
// was built before is looked for: the last build of the module for the target,
// in the cache and in each tier. Its record names the toolchain that made it.
// That toolchain, and the files outside of the source tree that it read, are
// believed; everything else of the key is looked at as ever: the cache's epoch,
// the target, flags and sources as the configuration has them, every file of
// the source tree that the compiler read, every name that would have been read
// in its place. With a compiler at hand nothing is believed.

// StalePrebuiltError says that there is no compiler for a target, and that what
// was built before is not what the sources now would give.
type StalePrebuiltError struct {
	Request
	Reason string // "header changed: csrc/include/aiter/cpu.h"
	Err    error  // why there is no compiler
}

func (e *StalePrebuiltError) Error() string {
	return fmt.Sprintf("what was built before of %s cannot be used (%s), and %v", e.Request, e.Reason, e.Err)
}

// Unwrap returns the toolchain's error.
func (e *StalePrebuiltError) Unwrap() error { return e.Err }

// noToolchain says whether the error means that nothing here builds for the
// target.
func noToolchain(err error) bool {
	var missing *toolchain.NotFoundError
	var other *toolchain.UnsupportedTargetError
	var forbidden *NoCompileError
	return errors.As(err, &missing) || errors.As(err, &other) || errors.As(err, &forbidden)
}

// usePrebuilt fills res from a build of before when why says that there is no
// toolchain. It returns why when it finds none.
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
			s.m.warnNamed(ctx, why, last)
			return nil
		}
		stale = reason
	}
	if stale == "" {
		return why
	}
	return &StalePrebuiltError{res.Request, stale, why}
}

// warnNamed tells, once, that a compiler which somebody asked for by name is not
// there: unlike a machine without compilers, that is hardly what was meant.
func (m *Manager) warnNamed(ctx context.Context, why error, last buildRecord) {
	var missing *toolchain.NotFoundError
	if !errors.As(why, &missing) || missing.Named == "" {
		return
	}
	m.mu.Lock()
	told := m.warned[missing.Named]
	m.warned[missing.Named] = true
	m.mu.Unlock()
	if !told {
		zerolog.Ctx(ctx).Warn().Str("used", "what was built before by "+last.Toolchain.Line).
			Msgf("%s: there is no such compiler; correct it, or unset it", missing.Named)
	}
}

// buildRecords are those of the whole module, then of the part that is asked for:
// the cache's own, then those of its tiers.
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

// lookupPrebuilt looks up what last was made from, as if its toolchain were here: the
// whole module, or the part that res asks for. It says what is different now,
// "" when res has been filled.
func (s *session) lookupPrebuilt(ctx context.Context, r Request, res *Result, last buildRecord) (stale string, err error) {
	units, link, err := s.planPrebuilt(ctx, r, last)
	if err != nil {
		return "", err
	}
	found := make([]UnitResult, len(units))
	for i, u := range units {
		if err := u.identify(); err != nil {
			return "", err
		}
		var miss Miss
		if found[i], miss = u.lookup(); !miss.IsHit() {
			return u.name() + ": " + miss.String(), nil
		}
		found[i].Reason = "prebuilt by " + last.Toolchain.Line + ", no compiler used"
	}
	link.identify(found)
	a, miss := link.find()
	if !miss.IsHit() {
		return "link: " + miss.String(), nil
	}
	s.observe(ctx, res.Request, Event{Step: ModuleStarted, Units: len(units)})
	for i, u := range units {
		u.observe(Event{Step: UnitHit, Status: Hit, Reason: found[i].Reason})
	}
	res.Units, res.Artifact = found, a
	res.record = newBuildRecord(res, link)
	return "", nil
}

// planPrebuilt resolves what a request needs as if last's toolchain were here.
func (s *session) planPrebuilt(ctx context.Context, r Request, last buildRecord) ([]*unit, *link, error) {
	mod, err := s.m.opts.Config.Module(r.Module)
	if err != nil {
		return nil, nil, err
	}
	units, link, err := s.planWith(ctx, r, mod, last.Toolchain.toolchain(r.Target))
	if err != nil {
		return nil, nil, err
	}
	for _, u := range units {
		u.trustToolchain, u.recorded = true, func() cache.Lines { return last.Units[u.name()] }
	}
	link.trustToolchain, link.recorded = true, func() cache.Lines { return last.Link }
	return units, link, nil
}

// CheckPrebuilt fails when a cache does not have all of the requests for a
// machine without any compiler, as the sources and the configuration are now.
// It reads what it finds through.
func (m *Manager) CheckPrebuilt(ctx context.Context, store *cache.Dir, reqs ...Request) error {
	opts := m.opts
	opts.Cache, opts.Finder, opts.Observer, opts.Force = store, noCompiler{}, nopObserver{}, false
	opts.Memo = filehash.Open("") // what was just written is read
	ctx = zerolog.Nop().WithContext(ctx)
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

// IncompleteError reports a prebuilt cache that lacks something it should hold.
type IncompleteError struct {
	Path    string
	Missing []Request
	Err     error // what the lookups said; not unwrapped: a compiler would not help
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("the cache in %s does not hold %v as a machine without compilers needs it: %v", e.Path, e.Missing, e.Err)
}

// noCompiler is the toolchains of a machine without any.
type noCompiler struct{}

// Find implements [Finder].
func (noCompiler) Find(_ context.Context, t target.Target) (*toolchain.Toolchain, error) {
	return nil, &toolchain.NotFoundError{Vendor: t.Vendor(), Looked: []string{"nowhere"}, Hint: "build it into the cache"}
}
