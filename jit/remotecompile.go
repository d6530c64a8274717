package jit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
)

var errNoFarm = errors.New("no build farm can run this")

// compileOnFarm is compileOnce on the executor. It fails if there is none, if the executor gives no usable object, for an object
// that depends on the folder of the tree, and for a unit with loader tables, whose headers workers do not get.
func (u *unit) compileOnFarm(ctx context.Context) (res UnitResult, changed string, err error) {
	if u.m.remote == nil || u.tables || u.tc.NamesRoot(u.source.Flags) {
		return res, "", errNoFarm
	}
	err = u.remotely(ctx, u.event(Event{}), len(u.treeLists()) > 0, func(declared, fresh bool) (err error) {
		res, changed, err = u.compileRemotely(ctx, declared, fresh)
		return err
	})
	return res, changed, err
}

// compileRemotely compiles on the executor once; see compileOnce for the results. The worker gets the files of the source tree that
// the last compile read; with declared, and for a first compile, all files in the folders that the module declares. It fails with
// [*ExecutorError] if the compile fails there, or if the worker read a file that differs from this machine's.
func (u *unit) compileRemotely(ctx context.Context, declared, fresh bool) (res UnitResult, changed string, err error) {
	stage, err := u.m.opts.Cache.NewStage()
	if err != nil {
		return res, "", err
	}
	defer stage.Close()
	on, err := deps.FoldersOf(ctx, u.view.Tree)
	if err != nil {
		return res, "", err
	}
	before, start := deps.Baseline{Started: deps.NextTick(u.m.clock), Snapshots: u.snapshots}, time.Now()
	files, err := u.remoteInputs(on, declared)
	if err != nil {
		return res, "", &ExecutorError{Cause: ExecutorInputs, Err: err}
	}
	command, err := u.remoteCommand(on, files, stage)
	if err != nil {
		return res, "", err
	}
	command.Fresh = fresh
	run, err := u.m.remote.executor.Execute(ctx, command)
	if err != nil {
		return res, "", err
	}
	if fault := u.outputFault(stage, outcome{}); fault != "" {
		return res, "", unusable(ExecutorDamaged, run, "compile of %s: %s", u.source.Source, fault)
	}
	tree, system, read, err := u.checkReads(stage, on, files)
	if err != nil {
		return res, "", unusable(ExecutorInputs, run, "compile of %s: %w", u.source.Source, err)
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

// remoteCommand returns the compile for a worker.
func (u *unit) remoteCommand(on deps.Folders, files map[string]inputFile, stage *cache.Stage) (RemoteCommand, error) {
	out := path.Join(workMark, outFolder)
	tools, err := u.m.remote.toolsOf(u.tc, u.pass)
	argv := u.argv(workerFolders(workMark, on), path.Join(out, objectFile), path.Join(out, depFileName))
	c := RemoteCommand{
		Script: compileScript(u.tc, tools, argv), Environ: workerEnviron(u.tc), Inputs: map[string][]byte{},
		Outputs:   []string{objectFile, depFileName, readsFile},
		Optional:  []string{headersFile, toolchain.AssemblerDepfile(depFileName)},
		Toolchain: u.tc.Identity(u.pass), Timeout: u.timeout, Dir: stage.Path,
	}
	there := workerFolders("", on)
	for name, f := range files {
		c.Inputs[there.Path(name)] = f.data
	}
	return c, err
}

// inputFile is a source or header that a worker gets.
type inputFile struct {
	data   []byte
	digest string
}

// Limits on the inputs of a command, so that data files in a checkout are not sent.
const (
	maxInputs    = 5000
	maxInputSize = 64 << 20 // bytes, of all
)

var errManyInputs = fmt.Errorf("the declared folders have more than %d files or %d MB", maxInputs, maxInputSize>>20)

// treeLists returns the lists of files of the source tree that the last compiles of the unit read: with the present source, else
// in the last build of the request. There are none before a first compile.
func (u *unit) treeLists() (lists []*deps.List) {
	var digests []string
	if sets, err := u.depSets(); err == nil && len(sets) > 0 {
		digests = []string{sets[0].Tree}
	} else {
		for _, ref := range u.refs() {
			if ref.Source == u.source.Source && len(ref.Deps) > 0 {
				digests = append(digests, ref.Deps[0])
			}
		}
	}
	for _, digest := range digests {
		if l, err := deps.Load(u.m.opts.Cache, digest); err == nil {
			lists = append(lists, l)
		}
	}
	return lists
}

// remoteInputs returns the files of the source tree for a worker, by name in the tree.
func (u *unit) remoteInputs(on deps.Folders, declared bool) (map[string]inputFile, error) {
	files, size := map[string]inputFile{}, 0
	add := func(name string) error {
		data, err := os.ReadFile(on.Path(name))
		if errors.Is(err, fs.ErrNotExist) { // a header that was removed; the compiler reports it if it is needed
			return nil
		}
		if _, known := files[name]; known {
			return nil
		}
		size += len(data)
		if len(files) == maxInputs || size > maxInputSize {
			return errManyInputs
		}
		files[name] = inputFile{data, cache.SHA256(data)}
		return err
	}
	if err := add(u.source.Source); err != nil {
		return nil, err
	}
	if lists := u.treeLists(); len(lists) > 0 && !declared {
		for _, l := range lists {
			for _, f := range l.Files {
				if err := add(f.Path); err != nil {
					return nil, err
				}
			}
		}
		return files, nil
	}
	for _, dir := range u.folders {
		if err := walkInputs(on, dir, add); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// remoteFolders returns the folders that a first compile on a worker gets: the include folders of the module, and the folder that
// contains all its sources. If that is the whole tree, it returns the folders of the sources instead.
func remoteFolders(mod *opconfig.Module) []string {
	sources := sourceFolders(mod)
	common := ""
	for i, dir := range sources {
		if i == 0 {
			common = dir
		}
		for common != "." && dir != common && !strings.HasPrefix(dir, common+"/") {
			common = path.Dir(common)
		}
	}
	if len(sources) > 0 && common != "." {
		sources = []string{common}
	}
	return slices.Concat(includesInTree(mod), sources)
}

// walkInputs calls add with the files in and below a folder of the tree. It leaves out hidden folders, such as .git.
func walkInputs(on deps.Folders, dir string, add func(name string) error) error {
	root := on.Path(dir)
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && p != root:
			return fs.SkipDir
		}
		if info, gone := os.Stat(p); gone != nil || !info.Mode().IsRegular() {
			return nil
		}
		below, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		return add(path.Join(dir, filepath.ToSlash(below)))
	})
	if errors.Is(err, fs.ErrNotExist) { // compilers ignore a missing include folder
		return nil
	}
	return err
}

// checkReads makes the dependency lists of a compile on a worker. It fails unless this machine has the same content of each
// file that the worker read, and unless the worker had each file that decides the result.
func (u *unit) checkReads(stage *cache.Stage, on deps.Folders, files map[string]inputFile) (
	tree, system *deps.List, read []string, err error,
) {
	data, err := deps.ReadReport(stage.File(readsFile))
	if err != nil {
		return nil, nil, nil, err
	}
	reads, err := parseReads(data, on)
	if err != nil {
		return nil, nil, nil, err
	}
	reported, err := u.readings(stage, workerFolders(reads.work, on), path.Join(reads.work, outFolder))
	if err != nil {
		return nil, nil, nil, err
	}
	if tree, system, read, err = u.view.Record(reported, u.search(on)); err != nil {
		return nil, nil, nil, err
	}
	for _, name := range slices.Concat(reported.Headers, reported.Assembled) {
		if want, err := u.view.Digest(name); err != nil || reads.digests[name] != want {
			return nil, nil, nil, &workerReadError{name, reads.digests[name], want}
		}
	}
	return tree, system, read, checkSent(tree, system, files)
}

// workerReadError reports a file that a worker read with another content.
type workerReadError struct{ name, got, want string }

func (e *workerReadError) Error() string {
	got := "SHA-256 " + e.got
	if e.got == "" {
		got = "no digest"
	}
	return fmt.Sprintf("the worker read %s with %s, and this machine has %s; give workers the toolchain and the headers of this machine",
		e.name, got, e.want)
}

// checkSent fails unless the worker had the files of the tree that decide the result, and no others. It fails if macros make names of
// files, because no list contains those names.
func checkSent(tree, system *deps.List, files map[string]inputFile) error {
	if n := len(tree.Folders) + len(system.Folders) + len(tree.Untracked) + len(system.Untracked); n > 0 {
		return errors.New("a macro makes the name of a file, so that the files that decide the result are unknown")
	}
	for _, f := range tree.Files {
		if files[f.Path].digest != f.Digest {
			return fmt.Errorf("%s decides the result, and the worker did not have its present content", f.Path)
		}
	}
	for _, a := range tree.Absent {
		name := path.Join(a.Dir, a.Name)
		for sent := range files {
			if sent == name || strings.HasPrefix(sent, name+"/") {
				return fmt.Errorf("%s was removed during the compile", name)
			}
		}
	}
	return nil
}
