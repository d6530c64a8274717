package jit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/cache"
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
	Reason  string         `json:"reason"`
	Seconds float64        `json:"seconds"`

	ref   cache.Ref
	lines cache.Lines
	cost  float64 // seconds that its object took, whenever it was compiled
}

// unit is one translation unit of one module for one target, or one of its two
// passes.
type unit struct {
	m              *Manager
	view           *fsView
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
	snapshots *snapshots // files as they were before the compiler started
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
	digest, err := u.view.tree.Digest(u.plan.Source)
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
		root, err := u.view.tree.Dir(context.Background())
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
func (u *unit) search(root string) search {
	return search{
		root: root, source: u.plan.Source, flags: u.plan.Flags,
		folders: u.headerFolders(), assembler: append([]string{"."}, u.include...),
	}
}

// headerFolders returns the folders in which the unit's headers are looked for,
// in the order in which they are.
func (u *unit) headerFolders() []string {
	quote, system, after := flagDirs(u.plan.Flags)
	return slices.Concat(quote, u.include, system, u.view.tc.IncludeDirs, after)
}

// depSets returns those of the cache, then those of its tiers.
func (u *unit) depSets() ([]depSet, error) { return loadDepSets(u.m.opts.Cache, u.key) }

// resultLines are the parts of the key of the object: the unit's and its
// dependencies'.
func (u *unit) resultLines(v depSet) cache.Lines {
	l := append(cache.Lines{}, u.lines...)
	l.Add("headers", v.Tree)
	l.Add("system headers", v.System)
	return l
}

// lookup finds the object for the sources as they are now. When there is none
// it says why.
func (u *unit) lookup() (res UnitResult, found bool, why string) {
	vs, err := u.depSets()
	if err != nil {
		return res, false, u.whyNew(err)
	}
	for i, v := range vs {
		stale := u.view.checkStored(u.m.opts.Cache, v.Tree, headerFile)
		if stale == "" && !u.trustToolchain {
			stale = u.view.checkStored(u.m.opts.Cache, v.System, headerFile)
		}
		if stale != "" {
			if i == 0 {
				why = stale
			}
			continue
		}
		if res, found, lost := u.hit(v); found {
			return res, true, ""
		} else if why == "" {
			why = lost
		}
	}
	return res, false, why
}

func (u *unit) hit(v depSet) (res UnitResult, found bool, why string) {
	lines := u.resultLines(v)
	key := lines.Key()
	object, cost, err := loadObject(u.m.opts.Cache, key)
	if err != nil {
		return res, false, "object lost: " + err.Error()
	}
	res = UnitResult{Source: u.plan.Source, Values: u.plan.Values, Pass: u.pass, Status: Hit, Reason: "unchanged", lines: lines, cost: cost}
	res.ref = cache.Ref{Source: u.plan.Source, Unit: u.key, Result: key, Object: object, Deps: []string{v.Tree, v.System}}
	return res, true, ""
}

// whyNew explains a miss by the first line that differs from the last build.
func (u *unit) whyNew(miss error) string {
	last := u.recorded()
	if last == nil {
		return u.whyUnknown()
	}
	for _, l := range u.lines {
		if before, ok := last.Get(l.Label); !ok || before != l.Value {
			return describe(l.Label) + " changed"
		}
	}
	return "not in the cache (" + miss.Error() + ")"
}

// whyUnknown explains a miss of a unit of which the cache remembers no build.
func (u *unit) whyUnknown() string {
	whole := buildRecordKey(Request{Module: u.module, Target: u.target, Part: u.part})
	if older := u.m.opts.Cache.Outdated(cache.BuildRecord, whole); older != "" {
		return "cache format changed: built by another version of this program (" + older + ")"
	}
	return "never built for " + u.variantName()
}

func describe(label string) string {
	switch label {
	case "argv":
		return "flags"
	case "epoch":
		return "cache format"
	}
	return label
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
		res, err := u.buildLocked(ctx, true, "forced")
		if err != nil {
			u.m.unclaimForced(u.key)
		}
		return res, err
	}
	res, found, why := u.lookup()
	if found {
		return res, nil
	}
	if failed := u.cachedFailure(); failed != nil {
		return UnitResult{}, failed
	}
	u.observe(Event{Step: UnitMissed, Reason: why})
	return u.buildLocked(ctx, false, why)
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
	logEvent(u.log, e)
	u.m.opts.Observer.Observe(e)
}

// buildLocked makes sure that one process alone compiles the unit, and that
// it is not compiled when another has just done it.
func (u *unit) buildLocked(ctx context.Context, force bool, why string) (UnitResult, error) {
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
		if res, found, _ := u.lookup(); found {
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
