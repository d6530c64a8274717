package jit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/depfile"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// maxEdits is how often a compile is repeated because a source changed while
// the compiler ran.
const maxEdits = 3

func (u *unit) compile(ctx context.Context, why Miss) (UnitResult, error) {
	u.observe(Event{Step: UnitStarted, Miss: why})
	start := time.Now()
	res, err := u.compileSettled(ctx)
	if err == nil {
		res.Status, res.Miss, res.Reason = Compiled, why, why.String()
	}
	u.observe(Event{Step: UnitFinished, Status: Compiled, Miss: why, Seconds: since(start), Err: err})
	return res, err
}

func (u *unit) compileSettled(ctx context.Context) (UnitResult, error) {
	root, err := u.view.Tree.Dir(ctx)
	if err != nil {
		return UnitResult{}, err
	}
	u.snapshots = u.takeSnapshots(root)
	for range maxEdits {
		res, changed, err := u.compileOnce(ctx)
		if err != nil || changed == "" {
			return res, err
		}
		u.view = u.view.Fresh()
		if err := u.identify(); err != nil {
			return UnitResult{}, err
		}
	}
	return UnitResult{}, &ChangingError{u.plan.Source}
}

// takeSnapshots returns the files that the unit probably reads, as they are before its compiler starts.
func (u *unit) takeSnapshots(root string) *deps.Snapshots {
	known := deps.NewSnapshots(u.view, root)
	known.Add(u.plan.Source)
	vs, _ := u.depSets()
	for _, v := range vs[:min(len(vs), 1)] {
		known.AddSet(u.m.opts.Cache, v)
	}
	for _, dir := range append([]string{path.Dir(u.plan.Source)}, u.include...) {
		if !path.IsAbs(dir) {
			known.AddFolder(dir)
		}
	}
	return known
}

// compileOnce runs the compiler in a stage and publishes what it made. It
// names a file that was edited meanwhile: nothing is published then.
func (u *unit) compileOnce(ctx context.Context) (res UnitResult, changed string, err error) {
	stage, err := u.m.opts.Cache.NewStage()
	if err != nil {
		return res, "", err
	}
	defer stage.Close()
	root, err := u.view.Tree.Dir(ctx)
	if err != nil {
		return res, "", err
	}
	before, clock := deps.Baseline{Started: deps.NextTick(u.m.clock), Snapshots: u.snapshots}, time.Now()
	if err := u.invoke(ctx, stage, root, before); err != nil {
		return res, "", err
	}
	reported, err := u.readings(stage, root)
	if err != nil {
		return res, "", fmt.Errorf("compile of %s: %w", u.plan.Source, err)
	}
	// The lists first: what is edited after the look at the times is not in them.
	tree, system, read, err := u.view.Record(reported, u.search(root))
	if err != nil {
		return res, "", fmt.Errorf("compile of %s: %w", u.plan.Source, err)
	}
	if changed = before.ChangedFile(u.m.clock(), read); changed != "" {
		return res, changed, nil
	}
	if now, err := u.m.opts.Finder.Find(ctx, u.target); err != nil || now.Digest != u.tc.Digest {
		return res, "", errors.Join(&ChangingError{u.tc.Compiler}, err)
	}
	res, err = u.publish(stage, tree, system, since(clock))
	return res, "", err
}

const (
	objectFile  = "unit.o"
	depFileName = "unit.d"
	headersFile = "unit.headers"
)

// invoke runs the compiler; whatever is wrong with the outcome is a
// [*CompileError].
func (u *unit) invoke(ctx context.Context, stage *cache.Stage, root string, before deps.Baseline) error {
	c := command{
		argv:    u.argv(root, stage.File(objectFile), stage.File(depFileName)),
		dir:     root,
		env:     u.environ(stage),
		timeout: u.timeout,
	}
	out, err := c.run(ctx)
	if err != nil {
		return err
	}
	if info, err := os.Stat(stage.File(objectFile)); out.reason == "" && (err != nil || info.Size() == 0) {
		out.reason = "it ended well but wrote no object file (a compiler in a container must see the cache folder " + u.m.opts.Cache.Path() + ")"
	}
	if out.reason == "" {
		out.reason = checkObject(stage.File(objectFile), u.pass == toolchain.Device)
	}
	if out.reason == "" {
		out.reason = u.wrongTarget(stage.File(objectFile))
	}
	if out.reason == "" {
		return nil
	}
	return u.fail(ctx, failedRun{stage, root, c, out, before})
}

// environ is the toolchain's closed list, with temporary files in the stage,
// and with Clang's list of headers: for HIP its depfile names only what the
// host pass has read.
func (u *unit) environ(stage *cache.Stage) []string {
	return append(u.tc.Environ(), "TMPDIR="+stage.Path,
		"CC_PRINT_HEADERS=1", "CC_PRINT_HEADERS_FILE="+stage.File(headersFile))
}

// fail makes the error, writes the log, and leaves the diagnostics for those
// who wait, and for those who ask for the same again.
func (u *unit) fail(ctx context.Context, r failedRun) error {
	c, out := r.command, r.outcome
	e := CompileError{
		Module: u.module, Target: u.target.String(), Source: u.plan.Source,
		Command: u.argv(c.dir, u.scratch(".o"), u.scratch(".d")), Dir: c.dir, Reason: out.reason, Output: string(out.output),
	}
	e.Log = writeLog(u.m.opts.Cache, u.key, &e)
	f := failureRecord{Seen: u.snapshots.TreeDigests(), Inputs: u.failedInputs(ctx, r), Error: e}
	if out.late {
		f.Limit = c.timeout
	}
	storeFailure(u.m.opts.Cache, u.key, f)
	return &e
}

// scratch is where a command that is shown to a person writes: beside its log. The
// stage that the real one wrote to is gone by then, and in /tmp another user could
// put a symlink under a name that is known before.
func (u *unit) scratch(suffix string) string {
	return strings.TrimSuffix(u.m.opts.Cache.LogPath(u.key), ".log") + suffix
}

// writeLog returns the log's path, "" when it could not be written.
func writeLog(store *cache.Dir, key cache.Key, e *CompileError) string {
	text := fmt.Sprintf("# %s\n# in %s\n# %s\n%s", Quote(e.Command), e.Dir, e.Reason, e.Output)
	if store.WriteLog(key, []byte(text)) != nil {
		return ""
	}
	return store.LogPath(key)
}

// readings returns what the compiler and the assembler report.
func (u *unit) readings(stage *cache.Stage, root string) (r deps.Readings, err error) {
	if r.Headers, err = readDeps(stage); err != nil {
		return r, err
	}
	r.Headers = treePaths(r.Headers, root)
	data, err := deps.ReadReport(stage.File(toolchain.AssemblerDepfile(depFileName)))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	names, err := depfile.Parse(data)
	if !bytes.HasSuffix(data, []byte("\n")) { // GNU as goes on when the disk is full
		err = truncatedError(stage.File(objectFile))
	}
	if err != nil {
		return r, fmt.Errorf("the assembler's list of files: %w", err)
	}
	r.AssemblerReported = true
	for _, p := range treePaths(names, root) {
		// The report also has the compiler's output, which is gone, and names in #line directives.
		if _, err := u.view.Digest(p); err == nil && !strings.HasPrefix(p, stage.Path+"/") && !slices.Contains(r.Headers, p) {
			r.Assembled = append(r.Assembled, p)
		}
	}
	return r, nil
}

// readDeps returns what the compiler says that it read.
func readDeps(stage *cache.Stage) ([]string, error) {
	data, err := deps.ReadReport(stage.File(depFileName))
	if err != nil {
		return nil, fmt.Errorf("the compiler wrote no dependency file: %w", err)
	}
	read, err := depfile.Parse(data)
	if err != nil {
		return nil, err
	}
	more, err := deps.ReadReport(stage.File(headersFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return depfile.Merge(read, depfile.ParseHeaders(more)), nil
}

// publish stores the object, then the records that lead to it. The compile
// took so many seconds.
func (u *unit) publish(stage *cache.Stage, tree, system *deps.List, cost float64) (UnitResult, error) {
	store := u.m.opts.Cache
	v, errV := deps.StoreSet(store, tree, system)
	u.held.hold(u.key, stage.File(objectFile))
	object, errO := store.AddBlob(stage.File(objectFile))
	if err := errors.Join(errV, errO); err != nil {
		return UnitResult{}, err
	}
	lines := u.resultLines(v)
	if err := storeObject(store, lines.Key(), object, cost); err != nil {
		return UnitResult{}, err
	}
	if err := deps.AddSet(store, u.key, v); err != nil {
		return UnitResult{}, err
	}
	_ = store.Forget(cache.Failure, u.key)
	ref := cache.Ref{Source: u.plan.Source, Unit: u.key, Result: lines.Key(), Object: object, Deps: []string{v.Tree, v.System}}
	u.observe(Event{Step: UnitPublished, Key: lines.Key(), Digest: object})
	return UnitResult{Source: u.plan.Source, Pass: u.pass, lines: lines, ref: ref, cost: cost}, nil
}
