package jit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// UnitResult is what became of one translation unit.
type UnitResult struct {
	Source  string         `json:"source"`
	Values  string         `json:"values"` // of axes that it was compiled for: "dtype=float16"
	Pass    toolchain.Pass `json:"pass,omitempty"`
	Status  Status         `json:"status"`
	Reason  string         `json:"reason"`        // of a hit, or the miss in words
	Miss    Miss           `json:"miss,omitzero"` // zero for a hit
	Seconds float64        `json:"seconds"`

	ref   cache.Ref
	lines cache.Lines
	cost  float64 // seconds that its object took, whenever it was compiled
}

// unit is one translation unit of one module for one target, or one of its two
// passes.
type unit struct {
	m              *Manager
	view           *deps.View
	tc             *toolchain.Toolchain
	module         string
	target         target.Target
	part           opconfig.Part // of the module, that the build is of
	include        []string
	plan           opconfig.Unit
	pass           toolchain.Pass
	timeout        time.Duration
	ticket         ticket             // for a compiler slot
	recorded       func() cache.Lines // of the same unit in the last build, none when there was none
	log            *zerolog.Logger
	held           *heldObjects
	trustToolchain bool // the toolchain is not here: its own headers are as they were; see prebuilt

	lines     cache.Lines
	key       cache.Key
	snapshots *deps.Snapshots // files as they were before the compiler started
}

// Placeholders in the argv of a key for what must not matter: where the tree
// and the outputs are.
const (
	rootMark   = "ROOT"
	objectMark = "OBJECT"
	depMark    = "DEPFILE"
)

// identify computes the unit's key: all that is known before compiling.
func (u *unit) identify() error {
	digest, err := u.view.Tree.Digest(u.plan.Source)
	if err != nil {
		return fmt.Errorf("source %s of %s: %w", u.plan.Source, u.module, err)
	}
	u.lines = nil
	u.lines.Add("epoch", epoch)
	u.lines.Add("action", "compile")
	u.lines.Add("target", u.pass.For(u.target))
	u.lines.Add("toolchain", u.tc.Identity(u.pass))
	// Dependency lists name system headers by path: those of an equal compiler in another folder are other files.
	u.lines.Add("toolchain folders", u.tc.Folders)
	argv := u.argv(rootMark, objectMark, depMark)
	u.lines.Add("argv", strings.Join(argv[1:], "\x00"))
	u.lines.Add("source "+u.plan.Source, digest)
	if u.tc.NamesRoot(u.plan.Flags) {
		root, err := u.view.Tree.Dir(context.Background())
		if err != nil {
			return err
		}
		u.lines.Add("checkout", root)
	}
	u.key = u.lines.Key()
	return nil
}

// id is unique among the translation units of a link, and the same wherever
// and whenever the unit is compiled, in both of its passes.
func (u *unit) id() string {
	var l cache.Lines
	l.Add("module", u.module)
	l.Add("source", u.plan.Source)
	l.Add("flags", strings.Join(u.plan.Flags, "\x00"))
	return string(l.Key()[:16])
}

func (u *unit) argv(root, object, dep string) []string {
	return u.tc.CompileArgs(u.toolchainUnit(root, object, dep))
}

func (u *unit) toolchainUnit(root, object, dep string) toolchain.Unit {
	return toolchain.Unit{
		Source: u.plan.Source, Object: object, Depfile: dep,
		Include: u.include, Flags: u.plan.Flags,
		Target: u.target, Pass: u.pass, ID: u.id(), Root: root,
	}
}

// search returns how the unit's names are looked for. Assemblers look in the
// folder that the compiler runs in first, and are told the include folders.
func (u *unit) search(root string) deps.Search {
	return deps.Search{
		Root: root, Source: u.plan.Source, Flags: u.plan.Flags,
		Folders: u.headerFolders(), Assembler: append([]string{"."}, u.include...),
	}
}

// headerFolders returns the folders in which the unit's headers are looked for,
// in the order in which they are.
func (u *unit) headerFolders() []string {
	quote, system, after := deps.FlagFolders(u.plan.Flags)
	return slices.Concat(quote, u.include, system, u.tc.IncludeDirs, after)
}

// depSets returns those of the cache, then those of its tiers.
func (u *unit) depSets() ([]deps.Set, error) { return deps.LoadSets(u.m.opts.Cache, u.key) }

// resultLines are the parts of the key of the object: the unit's and its
// dependencies'.
func (u *unit) resultLines(v deps.Set) cache.Lines {
	l := append(cache.Lines{}, u.lines...)
	l.Add("headers", v.Tree)
	l.Add("system headers", v.System)
	return l
}

// lookup finds the object for the sources as they are now. The miss is that of
// the latest dependency set.
func (u *unit) lookup() (UnitResult, Miss) {
	sets, err := u.depSets()
	if err != nil {
		return UnitResult{}, u.newMiss(err)
	}
	var first Miss
	for _, set := range sets {
		res, miss := u.lookupSet(set)
		if miss.IsHit() {
			return res, Miss{}
		}
		if first.IsHit() {
			first = miss
		}
	}
	return UnitResult{}, first
}

// lookupSet finds the object that was compiled with one dependency set.
func (u *unit) lookupSet(set deps.Set) (res UnitResult, miss Miss) {
	miss = u.check(set.Tree)
	if miss.IsHit() && !u.trustToolchain {
		miss = u.check(set.System)
	}
	if !miss.IsHit() {
		return res, miss
	}
	lines := u.resultLines(set)
	key := lines.Key()
	object, cost, err := loadObject(u.m.opts.Cache, key)
	if err != nil {
		return res, lostMiss("object lost", err)
	}
	res = UnitResult{Source: u.plan.Source, Values: u.plan.Values, Pass: u.pass, Status: Hit, Reason: "unchanged", lines: lines, cost: cost}
	res.ref = cache.Ref{Source: u.plan.Source, Unit: u.key, Result: key, Object: object, Deps: []string{set.Tree, set.System}}
	return res, Miss{}
}

// newMiss returns the miss of a key without dependency sets: the first line that
// differs from the last build's.
func (u *unit) newMiss(err error) Miss {
	last := u.recorded()
	if last == nil {
		record := buildRecordKey(Request{Module: u.module, Target: u.target, Part: u.part})
		if miss, outdated := outdatedMiss(u.m.opts.Cache, record); outdated {
			return miss
		}
		return Miss{Cause: CauseNew, Text: "never built for " + u.variantName()}
	}
	for _, l := range u.lines {
		if before, ok := last.Get(l.Label); !ok || before != l.Value {
			return lineMiss(l.Label)
		}
	}
	return lostMiss("not in the cache", err)
}

// build returns the unit's object, compiling it when the cache has none.
func (u *unit) build(ctx context.Context) (UnitResult, error) {
	start := time.Now()
	res, err := u.find(ctx)
	res.Source, res.Values, res.Pass, res.Seconds = u.plan.Source, u.plan.Values, u.pass, since(start)
	if err == nil && res.Status == Hit {
		u.observe(Event{Step: UnitHit, Status: Hit, Reason: res.Reason, Seconds: res.Seconds})
	}
	return res, err
}

func (u *unit) find(ctx context.Context) (UnitResult, error) {
	if err := u.identify(); err != nil {
		return UnitResult{}, err
	}
	if u.m.claimForced(u.key) {
		res, err := u.buildLocked(ctx, true, Miss{Cause: CauseForced})
		if err != nil {
			u.m.unclaimForced(u.key)
		}
		return res, err
	}
	res, miss := u.lookup()
	if miss.IsHit() {
		return res, nil
	}
	if failed := u.cachedFailure(); failed != nil {
		return UnitResult{}, failed
	}
	u.observe(Event{Step: UnitMissed, Miss: miss})
	return u.buildLocked(ctx, false, miss)
}

// name tells the unit from all others of its link.
func (u *unit) name() string { return unitName(u.plan.Source, u.pass) }

// variantName says what the unit is compiled for.
func (u *unit) variantName() string {
	return strings.TrimSpace(u.pass.For(u.target) + " " + u.plan.Values)
}

// observe tells an event of this unit.
func (u *unit) observe(e Event) {
	e.Module, e.Target, e.Part = u.module, u.target.String(), u.part.String()
	e.Source, e.Values, e.Pass = u.plan.Source, u.plan.Values, u.pass
	e.Reason = reasonOf(e)
	logEvent(u.log, e)
	u.m.opts.Observer.Observe(e)
}

// buildLocked makes sure that one process alone compiles the unit, and that
// it is not compiled when another has just done it.
func (u *unit) buildLocked(ctx context.Context, force bool, why Miss) (UnitResult, error) {
	before := u.lastFailure()
	wait := &lockWait{observe: u.observe}
	turn, err := u.m.acquire(ctx, u.ticket, cache.LockRequest{
		Key: u.key, What: "compile " + u.plan.Source + " for " + u.variantName(), Timeout: u.m.lockTimeout(u.timeout),
		Waiting: wait.begin,
	})
	wait.end(err)
	if err != nil {
		return UnitResult{}, err
	}
	defer turn.release()
	if !force {
		if res, miss := u.lookup(); miss.IsHit() {
			return res, nil
		}
		if failed := u.failureWhileWaiting(before); failed != nil {
			return UnitResult{}, failed
		}
	}
	if err := turn.acquireSlot(ctx); err != nil {
		return UnitResult{}, err
	}
	return u.compile(ctx, why)
}
