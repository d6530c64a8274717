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
	"github.com/aiter-go/aiter/internal/shell"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// maxCompiles is the number of compiles of one unit whose files change while the compiler
// runs.
const maxCompiles = 3

// run compiles the unit and reports the compiler's start and end. It compiles again if a file
// changed meanwhile.
func (u *unit) run(ctx context.Context, why Miss) (res UnitResult, err error) {
	u.observe(Event{Step: UnitStarted, Miss: why})
	ctx, end := u.m.begin(ctx, Compiling, u.event(Event{Step: UnitStarted, Miss: why}))
	start := time.Now()
	defer func() {
		finished := Event{Step: UnitFinished, Status: Compiled, Miss: why, Seconds: since(start), Err: err}
		u.observe(finished)
		end(u.event(finished))
	}()
	on, err := deps.FoldersOf(ctx, u.view.Tree)
	if err != nil {
		return res, err
	}
	u.snapshots = u.takeSnapshots(on)
	for range maxCompiles {
		res, changed, err := u.compileOnFarm(ctx)
		if errors.Is(err, errNoFarm) || err != nil && ctx.Err() == nil {
			res, changed, err = u.compileOnce(ctx)
		}
		if err != nil {
			return res, err
		}
		if changed == "" {
			res.Status, res.Miss, res.Reason = Compiled, why, why.String()
			return res, nil
		}
		u.view = u.view.Fresh()
		if err := u.identify(); err != nil {
			return UnitResult{}, err
		}
	}
	return UnitResult{}, &ChangingError{u.source.Source}
}

// takeSnapshots returns the present state of the files that the compiler will probably read:
// those of the latest dependency set, and those in the folders of the source and its headers.
func (u *unit) takeSnapshots(on deps.Folders) *deps.Snapshots {
	known := deps.NewSnapshots(u.view, on)
	known.Add(u.source.Source)
	if sets, err := u.depSets(); err == nil && len(sets) > 0 {
		known.AddSet(u.m.opts.Cache, sets[0])
	}
	for _, dir := range append([]string{path.Dir(u.source.Source)}, u.include...) {
		if !path.IsAbs(dir) {
			known.AddFolder(dir)
		}
	}
	return known
}

// compileOnce runs the compiler in a stage and publishes the object. If a file changed
// meanwhile, it returns the path of that file and publishes nothing.
func (u *unit) compileOnce(ctx context.Context) (res UnitResult, changed string, err error) {
	release, err := u.fallback(ctx)
	if err != nil {
		return res, "", err
	}
	defer release()
	stage, err := u.m.opts.Cache.NewStage()
	if err != nil {
		return res, "", err
	}
	defer stage.Close()
	on, err := u.prepare(ctx)
	if err != nil {
		return res, "", err
	}
	before, start := deps.Baseline{Started: deps.NextTick(u.m.clock), Snapshots: u.snapshots}, time.Now()
	c := newCommand(u.argv(on, stage.File(objectFile), stage.File(depFileName)), on.Root, u.environ(stage), u.timeout)
	out, err := outcomeOf(ctx, c, c.Run(ctx))
	if err != nil {
		return res, "", err
	}
	if out.reason = u.outputFault(stage, out); out.reason != "" {
		return res, "", u.failCompile(ctx, failedRun{stage, on, c, out, before})
	}
	reported, err := u.readings(stage, on, stage.Path)
	if err != nil {
		return res, "", fmt.Errorf("compile of %s: %w", u.source.Source, err)
	}
	// The lists are made before the check of the times, because they must not contain a change that comes after the check.
	tree, system, read, err := u.view.Record(reported, u.search(on))
	if err != nil {
		return res, "", fmt.Errorf("compile of %s: %w", u.source.Source, err)
	}
	if changed = before.ChangedFile(u.m.clock(), read); changed != "" {
		return res, changed, nil
	}
	if now, err := u.m.opts.Finder.Find(ctx, u.req.Target); err != nil || now.Digest != u.tc.Digest {
		return res, "", errors.Join(&ChangingError{u.tc.Compiler}, err)
	}
	res, err = u.publish(stage, tree, system, since(start))
	return res, "", err
}

const (
	objectFile  = "unit.o"
	depFileName = "unit.d"
	headersFile = "unit.headers"
)

// outputFault returns why a compiler run failed, "" if it made a complete object for
// the right target.
func (u *unit) outputFault(stage *cache.Stage, out outcome) string {
	if out.reason != "" {
		return out.reason
	}
	object := stage.File(objectFile)
	if info, err := os.Stat(object); err != nil || info.Size() == 0 {
		return "it exited without an error, but wrote no object file; a compiler in a container needs the cache folder " +
			u.m.opts.Cache.Path() + " mounted under the same path"
	}
	if u.makesFatbin() {
		return u.wrongTarget(object)
	}
	if fault := checkObject(object, u.pass.MakesDeviceCode()); fault != "" {
		return fault
	}
	return u.wrongTarget(object)
}

// environ returns the complete environment of the compiler: that of the toolchain, the stage
// as the folder of temporary files, and variables that make Clang list all headers. The
// depfile of a HIP unit that is compiled in one run lists the headers of the host pass only.
func (u *unit) environ(stage *cache.Stage) []string {
	return append(u.tc.Environ(), "TMPDIR="+stage.Path,
		"CC_PRINT_HEADERS=1", "CC_PRINT_HEADERS_FILE="+stage.File(headersFile))
}

// failCompile makes the error of a failed compile and stores the failure.
func (u *unit) failCompile(ctx context.Context, r failedRun) error {
	f := failureRecord{Seen: u.snapshots.TreeDigests(), Inputs: u.failedInputs(ctx, r)}
	f.Error.Source, f.Error.Command = u.source.Source, u.argv(r.on, u.scratch(".o"), u.scratch(".d"))
	return u.fail(f, r.command, r.outcome)
}

// scratch returns the path of an output for the command in an error, which users may run by
// hand: beside the log. The stage of the real command is already removed. In /tmp another
// user could create a symlink under a predictable name.
func (u *unit) scratch(suffix string) string {
	return strings.TrimSuffix(u.m.opts.Cache.LogPath(u.key), ".log") + suffix
}

// writeLog returns the path of the log, "" if it could not be written.
func writeLog(store *cache.Dir, key cache.Key, e *CompileError) string {
	text := fmt.Sprintf("# %s\n# in %s\n# %s\n%s", shell.Join(e.Command), e.Dir, e.Reason, e.Output)
	if store.WriteLog(key, []byte(text)) != nil {
		return ""
	}
	return store.LogPath(key)
}

// readings returns the files that the reports of the compiler and the assembler list. The compiler ran with the source tree in the
// folders on and wrote its outputs to the folder out.
func (u *unit) readings(stage *cache.Stage, on deps.Folders, out string) (r deps.Readings, err error) {
	if r.Headers, err = readDeps(stage); err != nil {
		return r, err
	}
	r.Headers = u.inTree(r.Headers, on)
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
	for _, p := range u.inTree(names, on) {
		// The report also lists the compiler's output, which was a temporary file, and names in #line directives.
		if _, err := u.view.Digest(p); err == nil && !strings.HasPrefix(p, out+"/") && !slices.Contains(r.Headers, p) {
			r.Assembled = append(r.Assembled, p)
		}
	}
	return r, nil
}

// readDeps returns the files that the compiler's depfile and Clang's list of headers contain.
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

// publish stores the object, then the records that lead to it. cost is the time of the
// compile in seconds.
func (u *unit) publish(stage *cache.Stage, tree, system *deps.List, cost float64) (UnitResult, error) {
	store := u.m.opts.Cache
	set, errSet := deps.StoreSet(store, tree, system)
	u.held.hold(u.key, stage.File(objectFile))
	object, errObject := store.AddBlob(stage.File(objectFile))
	if err := errors.Join(errSet, errObject); err != nil {
		return UnitResult{}, err
	}
	lines := u.resultLines(set)
	if err := storeObject(store, lines.Key(), object, cost); err != nil {
		return UnitResult{}, err
	}
	if err := deps.AddSet(store, u.key, set); err != nil {
		return UnitResult{}, err
	}
	_ = store.Forget(cache.Failure, u.key)
	ref := cache.Ref{Source: u.source.Source, Unit: u.key, Result: lines.Key(), Object: object, Deps: []string{set.Tree, set.System}}
	u.observe(Event{Step: UnitPublished, Key: lines.Key(), Digest: object})
	return UnitResult{Source: u.source.Source, Pass: u.pass, lines: lines, ref: ref, cost: cost}, nil
}
