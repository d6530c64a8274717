package jit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// UnitResult is the outcome of one translation unit.
type UnitResult struct {
	Source  string         `json:"source"`
	Values  string         `json:"values"` // axis values of the unit: "dtype=float16"
	Pass    toolchain.Pass `json:"pass,omitempty"`
	Status  Status         `json:"status"`
	Reason  string         `json:"reason"`        // why it was a hit, or the miss in words
	Miss    Miss           `json:"miss,omitzero"` // zero for a hit
	Seconds float64        `json:"seconds"`

	ref   cache.Ref
	lines cache.Lines // of the object's key
	cost  float64     // seconds that the compile of the object took, in this build or an earlier one
}

// unit is the action that compiles one translation unit for one target, or one of its two
// passes.
type unit struct {
	action
	include []string           // relative to the source tree, or absolute
	folders []string           // of the source tree, in which the module declares its files
	refs    func() []cache.Ref // of the last build of the request
	source  opconfig.Unit
	pass    toolchain.Pass

	assembly  *assemblyInputs
	tables    bool   // the module has loader tables of assembly code objects
	tablesDir string // the folder on disk with their headers; "" until [unit.prepare]

	snapshots *deps.Snapshots   // of files before the compiler starts
	lookedUp  func(missed bool) // is called after the first lookup; nil: the plan runs no action
}

var _ runner[UnitResult] = (*unit)(nil)

// Placeholders in the argv of a key. They replace paths that do not affect the result: the
// source tree, the tree of the built-in headers, the folder of the headers of loader tables, and the outputs.
const (
	rootMark   = "ROOT"
	headerMark = "HEADERS"
	tablesMark = "TABLES"
	objectMark = "OBJECT"
	depMark    = "DEPFILE"
)

// identify computes the unit's key from the inputs that are known before the compile. It
// fails if the source cannot be read.
func (u *unit) identify() error {
	digest, err := u.view.Tree.Digest(u.source.Source)
	if err != nil {
		return fmt.Errorf("source %s of %s: %w", u.source.Source, u.req.Module, err)
	}
	u.lines = nil
	u.lines.Add("epoch", epoch)
	u.lines.Add("action", "compile")
	u.lines.Add("target", u.pass.For(u.req.Target))
	u.lines.Add("toolchain", u.tc.Identity(u.pass))
	// Dependency lists name system headers by path, which differ for an equal compiler in another folder.
	u.lines.Add("toolchain folders", u.tc.Folders)
	argv := u.argv(u.marks(), objectMark, depMark)
	u.lines.Add("argv", strings.Join(argv[1:], "\x00"))
	u.lines.Add("source "+u.source.Source, digest)
	if u.trustToolchain {
		trusted(&u.lines, u.recorded(), tableLabel)
	} else {
		u.assembly.addHeaders(&u.lines)
	}
	if u.tc.NamesRoot(u.source.Flags) {
		on, err := deps.FoldersOf(context.Background(), u.view.Tree)
		if err != nil {
			return err
		}
		u.lines.Add("checkout", strings.TrimSpace(on.Root+" "+on.Headers))
	}
	u.key = u.lines.Key()
	return nil
}

// id returns a digest that is unique among the translation units of a link. It is equal for
// both passes and on all machines.
func (u *unit) id() string {
	var l cache.Lines
	l.Add("module", u.req.Module)
	l.Add("source", u.source.Source)
	l.Add("flags", strings.Join(u.source.Flags, "\x00"))
	return string(l.Key()[:16])
}

// marks returns the placeholders of the source folders.
func (u *unit) marks() deps.Folders {
	if m, ok := u.view.Tree.(*deps.MountedTree); ok {
		return deps.Folders{Root: rootMark, Headers: headerMark, Name: m.Name()}
	}
	return deps.Folders{Root: rootMark}
}

func (u *unit) argv(on deps.Folders, object, dep string) []string {
	return u.tc.CompileArgs(u.toolchainUnit(on, object, dep))
}

func (u *unit) toolchainUnit(on deps.Folders, object, dep string) toolchain.Unit {
	var include []string
	tables := ""
	if u.tables {
		if tables = u.tablesDir; on.Root == rootMark {
			tables = tablesMark
		}
		include = append(include, tables) // the first, so that no other header shadows these
	}
	for _, dir := range u.include {
		include = append(include, on.Include(dir))
	}
	return toolchain.Unit{
		Source: u.source.Source, Object: object, Depfile: dep,
		Include: include, Flags: u.source.Flags,
		Target: u.req.Target, Pass: u.pass, ID: u.id(), Root: on.Root, Headers: on.Headers, HeadersName: on.Name, Tables: tables,
	}
}

// prepare writes the headers of loader tables to disk, and returns the folders of the source tree.
func (u *unit) prepare(ctx context.Context) (on deps.Folders, err error) {
	if u.tablesDir, err = u.assembly.headersDir(ctx); err != nil {
		return on, err
	}
	return deps.FoldersOf(ctx, u.view.Tree)
}

// inTree makes paths in the source tree relative, and drops the headers of loader tables, which the unit's key covers.
func (u *unit) inTree(read []string, on deps.Folders) []string {
	for i := range read {
		read[i] = on.InTree(read[i])
	}
	return slices.DeleteFunc(read, func(p string) bool { return u.tablesDir != "" && strings.HasPrefix(p, u.tablesDir+"/") })
}

// search returns the folders in which compiler and assembler look up the names in the unit.
// Assemblers search the compiler's working folder first, then the include folders.
func (u *unit) search(on deps.Folders) deps.Search {
	return deps.Search{
		Tree: on, Source: u.source.Source, Flags: u.source.Flags,
		Folders: u.headerFolders(), Assembler: append([]string{"."}, u.include...),
	}
}

// headerFolders returns the search path of the unit's headers, in order.
func (u *unit) headerFolders() []string {
	quote, system, after := deps.FlagFolders(u.source.Flags)
	return slices.Concat(quote, u.include, system, u.tc.IncludeDirs, after)
}

// depSets returns the dependency sets of the cache, then those of its read-only caches.
func (u *unit) depSets() ([]deps.Set, error) { return deps.LoadSets(u.m.opts.Cache, u.key) }

// resultLines returns the lines of the object's key: the unit's and its dependencies'.
func (u *unit) resultLines(set deps.Set) cache.Lines {
	l := append(cache.Lines{}, u.lines...)
	l.Add("headers", set.Tree)
	l.Add("system headers", set.System)
	return l
}

// lookup finds the object for the present files. The miss is that of the latest dependency
// set.
func (u *unit) lookup() (UnitResult, Miss) {
	sets, err := u.depSets()
	if err != nil {
		return UnitResult{}, u.newMiss(err, "never built for "+u.targetAndValues())
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

// lookupSet finds the object that was compiled with a dependency set, if the files of the set
// are unchanged.
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
		return res, lostMiss("the object", err)
	}
	res = UnitResult{
		Source: u.source.Source, Values: u.source.Values, Pass: u.pass, Status: Hit, Reason: "unchanged",
		lines: lines, cost: cost,
	}
	res.ref = cache.Ref{Source: u.source.Source, Unit: u.key, Result: key, Object: object, Deps: []string{set.Tree, set.System}}
	return res, Miss{}
}

// name is unique among the units of a link.
func (u *unit) name() string { return unitName(u.source.Source, u.pass) }

// targetAndValues returns the target and the axis values of the unit, in words.
func (u *unit) targetAndValues() string {
	if u.source.Values == "" {
		return u.pass.For(u.req.Target)
	}
	return u.pass.For(u.req.Target) + ", " + opconfig.Words(u.source.Values)
}

// event adds the fields of the unit and the request.
func (u *unit) event(e Event) Event {
	e.Source, e.Values, e.Pass = u.source.Source, u.source.Values, u.pass
	return u.action.event(e)
}

// observe reports an event of this unit.
func (u *unit) observe(e Event) {
	if e.Step == UnitMissed && u.lookedUp != nil {
		u.lookedUp(true)
	}
	u.action.observe(u.event(e))
}

func (u *unit) describe() string { return "compile " + u.source.Source + " for " + u.targetAndValues() }

func (u *unit) missed() Step { return UnitMissed }

// inputsHold reports whether the files of a dependency set are unchanged.
func (u *unit) inputsHold(set deps.Set) bool {
	return u.check(set.Tree).IsHit() && u.check(set.System).IsHit()
}

// finish fills in the unit and the seconds of a result, and reports a hit.
func (u *unit) finish(res *UnitResult, seconds float64, err error) {
	res.Source, res.Values, res.Pass, res.Seconds = u.source.Source, u.source.Values, u.pass, seconds
	if err == nil && res.Status == Hit {
		u.observe(Event{Step: UnitHit, Status: Hit, Reason: res.Reason, Seconds: seconds})
	}
}
