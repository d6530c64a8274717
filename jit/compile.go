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

// maxEdits is the number of compiles of one unit when a source changes while the
// compiler runs.
const maxEdits = 3

// run compiles the unit and reports the compiler's start and end.
func (u *unit) run(ctx context.Context, why Miss) (res UnitResult, err error) {
	u.observe(Event{Step: UnitStarted, Miss: why})
	start := time.Now()
	defer func() {
		u.observe(Event{Step: UnitFinished, Status: Compiled, Miss: why, Seconds: since(start), Err: err})
	}()
	root, err := u.view.Tree.Dir(ctx)
	if err != nil {
		return res, err
	}
	u.snapshots = u.takeSnapshots(root)
	for range maxEdits {
		res, changed, err := u.compileOnce(ctx)
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

// takeSnapshots returns the present state of the files that the unit probably reads.
func (u *unit) takeSnapshots(root string) *deps.Snapshots {
	known := deps.NewSnapshots(u.view, root)
	known.Add(u.source.Source)
	vs, _ := u.depSets()
	for _, v := range vs[:min(len(vs), 1)] {
		known.AddSet(u.m.opts.Cache, v)
	}
	for _, dir := range append([]string{path.Dir(u.source.Source)}, u.include...) {
		if !path.IsAbs(dir) {
			known.AddFolder(dir)
		}
	}
	return known
}

// compileOnce runs the compiler in a stage and publishes the object. If a file was
// edited meanwhile, it returns that file and publishes nothing.
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
	c := command{
		argv:    u.argv(root, stage.File(objectFile), stage.File(depFileName)),
		dir:     root,
		env:     u.environ(stage),
		timeout: u.timeout,
	}
	out, err := c.run(ctx)
	if err != nil {
		return res, "", err
	}
	if out.reason = u.outputFault(stage, out); out.reason != "" {
		return res, "", u.failCompile(ctx, failedRun{stage, root, c, out, before})
	}
	reported, err := u.readings(stage, root)
	if err != nil {
		return res, "", fmt.Errorf("compile of %s: %w", u.source.Source, err)
	}
	// The lists come first: an edit after the check of the times is not in them.
	tree, system, read, err := u.view.Record(reported, u.search(root))
	if err != nil {
		return res, "", fmt.Errorf("compile of %s: %w", u.source.Source, err)
	}
	if changed = before.ChangedFile(u.m.clock(), read); changed != "" {
		return res, changed, nil
	}
	if now, err := u.m.opts.Finder.Find(ctx, u.req.Target); err != nil || now.Digest != u.tc.Digest {
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

// outputFault returns why a compiler run failed, "" if it made a complete object for
// the right target.
func (u *unit) outputFault(stage *cache.Stage, out outcome) string {
	if out.reason != "" {
		return out.reason
	}
	object := stage.File(objectFile)
	if info, err := os.Stat(object); err != nil || info.Size() == 0 {
		return "it ended well but wrote no object file (a compiler in a container must see the cache folder " + u.m.opts.Cache.Path() + ")"
	}
	if fault := checkObject(object, u.pass == toolchain.Device); fault != "" {
		return fault
	}
	return u.wrongTarget(object)
}

// environ returns the toolchain's closed list with the stage as the folder of temporary
// files, and with Clang's list of headers: the depfile of a HIP unit has the headers of
// the host pass only.
func (u *unit) environ(stage *cache.Stage) []string {
	return append(u.tc.Environ(), "TMPDIR="+stage.Path,
		"CC_PRINT_HEADERS=1", "CC_PRINT_HEADERS_FILE="+stage.File(headersFile))
}

// failCompile makes the error of a failed compile and stores the failure.
func (u *unit) failCompile(ctx context.Context, r failedRun) error {
	f := failureRecord{Seen: u.snapshots.TreeDigests(), Inputs: u.failedInputs(ctx, r)}
	f.Error.Source, f.Error.Command = u.source.Source, u.argv(r.command.dir, u.scratch(".o"), u.scratch(".d"))
	return u.fail(f, r.command, r.outcome)
}

// scratch returns the path of an output in the command that an error shows: beside the
// log. The stage of the real command is removed, and in /tmp another user could place a
// symlink under a predictable name.
func (u *unit) scratch(suffix string) string {
	return strings.TrimSuffix(u.m.opts.Cache.LogPath(u.key), ".log") + suffix
}

// writeLog returns the path of the log, "" if it could not be written.
func writeLog(store *cache.Dir, key cache.Key, e *CompileError) string {
	text := fmt.Sprintf("# %s\n# in %s\n# %s\n%s", Quote(e.Command), e.Dir, e.Reason, e.Output)
	if store.WriteLog(key, []byte(text)) != nil {
		return ""
	}
	return store.LogPath(key)
}

// readings returns the files that the compiler and the assembler report.
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

// readDeps returns the files that the compiler reports.
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

// publish stores the object, then the records that lead to it. cost is the compile's
// time in seconds.
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
	ref := cache.Ref{Source: u.source.Source, Unit: u.key, Result: lines.Key(), Object: object, Deps: []string{v.Tree, v.System}}
	u.observe(Event{Step: UnitPublished, Key: lines.Key(), Digest: object})
	return UnitResult{Source: u.source.Source, Pass: u.pass, lines: lines, ref: ref, cost: cost}, nil
}
