package jit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/process"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// link makes the shared library of a module or part from its objects.
type link struct {
	action
	mod     *opconfig.Module
	ops     []string // operators in the library
	sources []string // of its units
	flags   []string
	outside outsideFolders // of the units
	// accepted are optional flags of the units, each with its value.
	accepted [][]string

	assembly *assemblyInputs

	units []UnitResult // whose objects are linked
	ran   bool         // the linker was started
	miss  Miss         // why it was started
}

var _ runner[cache.Artifact] = (*link)(nil)

// identify computes the link's key from the objects.
func (l *link) identify(units []UnitResult) {
	l.lines, l.units, l.ran, l.miss = nil, units, false, Miss{}
	l.lines.Add("epoch", epoch)
	l.lines.Add("action", "link")
	l.lines.Add("target", l.req.Target.String())
	l.lines.Add("toolchain", l.tc.Digest)
	l.lines.Add("toolchain folders", l.tc.Folders)
	l.lines.Add("module", l.mod.Name)
	if !l.req.Part.Whole() {
		l.lines.Add("spec", l.req.Part.String())
	}
	var names []string
	for i, u := range units {
		if k, _ := u.Pass.Shard(); k <= 1 {
			names = append(names, objectName(i))
		}
	}
	if slices.ContainsFunc(units, func(u UnitResult) bool { return u.Pass.MakesDeviceCode() }) {
		l.lines.Add("embedding", l.embedding())
	}
	if takesAssembly(l.mod, l.req.Target) {
		names = append(names, assemblyFile)
		l.lines.Add(assemblyLabel, codeobject.FilesFormat+": "+l.mod.Assembly.String())
	}
	argv := l.argv(rootMark, names, objectMark)
	// Keys contain an option that the linker does not get, so that existing caches stay valid.
	argv = slices.Insert(argv, slices.Index(argv, "--build-id=sha1")+1, "-Xlinker", "--dependency-file="+depMark)
	l.lines.Add("argv", strings.Join(argv[1:], "\x00"))
	if len(l.ops) > 0 { // missingOperators has checked them
		l.lines.Add("operators", strings.Join(slices.Sorted(slices.Values(l.ops)), " "))
		for _, op := range l.declared() {
			l.lines.Add("signature "+op.Name, declaredSignature(op).String())
		}
	}
	if l.trustToolchain {
		trusted(&l.lines, l.recorded(), codeObjectLabel, allObjectsLabel)
	} else {
		l.assembly.addObjects(&l.lines)
	}
	for _, u := range units {
		l.lines.Add("object "+unitName(u.Source, u.Pass), u.ref.Object)
	}
	l.key = l.lines.Key()
}

// objectName returns the name of an object during the link. The library must not
// contain the path of an object.
func objectName(i int) string { return fmt.Sprintf("unit%d.o", i) }

// assemblyFile is the name of the object with assembly code objects during the link.
const assemblyFile = "assembly.o"

func (l *link) argv(root string, objects []string, output string) []string {
	return l.tc.LinkArgs(toolchain.Link{Objects: objects, Output: output, Flags: l.flags, Target: l.req.Target, Root: root})
}

func (l *link) describe() string { return "link " + l.req.String() }

func (l *link) missed() Step { return LinkMissed }

// inputsHold reports whether the key covers all inputs.
func (l *link) inputsHold(deps.Set) bool { return !l.namesFiles() }

// lookup finds the artifact of the key. Objects and flags determine the library, unless flags
// name files, because the key does not cover the content of those. Such a link runs at each
// build. For a prebuilt library those files are trusted.
func (l *link) lookup() (a cache.Artifact, miss Miss) {
	if l.namesFiles() && !l.trustToolchain {
		return a, Miss{Cause: CauseUntracked, Text: "flags name files, so that the link runs at each build"}
	}
	store := l.m.opts.Cache
	err := store.Find(cache.Linked, l.key, func(id []byte) (err error) {
		if a, err = store.KnownArtifact(string(id), l.m.opts.Memo.Digest); err != nil {
			return err
		}
		return l.isFor(a)
	})
	if err != nil {
		return cache.Artifact{}, l.newMiss(err, "never linked for "+l.req.Target.String())
	}
	a.Ops = l.ops // the configuration may have changed
	return a, Miss{}
}

// isFor fails with [*cache.WrongRecordError] if the artifact has another module, target or
// part than the link. The artifact's own link key may differ, because links with several
// keys may give one library.
func (l *link) isFor(a cache.Artifact) error {
	want := l.req.String()
	if a.Name() != want {
		return &cache.WrongRecordError{Got: a.Name(), Want: want}
	}
	return nil
}

// run links and reports the linker's start and end.
func (l *link) run(ctx context.Context, why Miss) (a cache.Artifact, err error) {
	l.ran, l.miss = true, why
	l.observe(Event{Step: LinkStarted, Miss: why})
	ctx, end := l.m.begin(ctx, Linking, l.event(Event{Step: LinkStarted, Miss: why}))
	start := time.Now()
	defer func() {
		finished := Event{Step: LinkFinished, Status: Compiled, Miss: why, Seconds: since(start), Err: err}
		l.observe(finished)
		end(l.event(finished))
	}()
	if a, err = l.linkOnFarm(ctx); errors.Is(err, errNoFarm) || err != nil && ctx.Err() == nil {
		a, err = l.linkOnce(ctx)
	}
	return a, err
}

// linkOnce links copies of the objects in a stage. The copies have fixed names, so that equal
// objects give equal libraries in each folder.
func (l *link) linkOnce(ctx context.Context) (a cache.Artifact, err error) {
	release, err := l.fallback(ctx)
	if err != nil {
		return a, err
	}
	defer release()
	stage, err := l.m.opts.Cache.NewStage()
	if err != nil {
		return a, err
	}
	defer stage.Close()
	objects, err := l.gather(stage)
	if err != nil {
		return a, err
	}
	start := time.Now()
	env := append(l.tc.Environ(), "TMPDIR="+stage.Path)
	c := newCommand(l.argv(stage.Path, objects, l.output()), stage.Path, env, l.timeout)
	out, err := outcomeOf(ctx, c, c.Run(ctx))
	if err != nil {
		return a, err
	}
	if out.reason = l.outputFault(stage, objects, out); out.reason != "" {
		return a, l.failLink(c, out)
	}
	return l.publish(stage, since(start))
}

// outputFault returns why a linker run failed, "" if it made a complete library with
// all operators.
func (l *link) outputFault(stage *cache.Stage, objects []string, out outcome) string {
	if out.reason != "" {
		return out.reason
	}
	library := stage.File(l.output())
	if info, err := os.Stat(library); err != nil || info.Size() == 0 {
		return "it exited without an error, but wrote no library"
	}
	if fault := checkLibrary(library, machineOf(stage.Path, objects)); fault != "" {
		return fault
	}
	return l.wrongOperators(library)
}

// failLink makes the error of a failed link and stores the failure.
func (l *link) failLink(c *process.Command, out outcome) error {
	f := failureRecord{Error: CompileError{Command: c.Argv}}
	if isInputError(out) {
		f.Inputs = new(deps.Set) // the key covers them; see inputsHold
	}
	return l.fail(f, c, out)
}

// publish stores the library, then the record that leads to it. seconds is the time of the
// link.
func (l *link) publish(stage *cache.Stage, seconds float64) (cache.Artifact, error) {
	store := l.m.opts.Cache
	a, err := store.AddArtifact(stage, stage.File(l.output()), l.description(seconds))
	if err != nil {
		return a, err
	}
	l.observe(Event{Step: LinkPublished, Key: l.key, Digest: a.Digest})
	_ = store.Forget(cache.Failure, l.key)
	return a, store.Put(cache.Linked, l.key, []byte(a.ID))
}

func (l *link) output() string { return l.mod.Name + ".so" }

// gather puts the objects into the stage and returns their names. All shards of a unit give one object.
func (l *link) gather(stage *cache.Stage) ([]string, error) {
	var names []string
	var code [][]byte // of the unit's shards so far
	for i, u := range l.units {
		put, k, n := linkOrCopy, 0, 0
		if k, n = u.Pass.Shard(); n > 0 {
			put = func(from, _ string) error {
				data, err := os.ReadFile(from)
				code = append(code, data)
				return err
			}
		}
		if err := l.held.place(u.ref, stage.File(objectName(i)), put); err != nil {
			return nil, err
		}
		if k < n {
			continue
		}
		first := i - max(n-1, 0)
		if n > 0 { // the host object of the same unit precedes its device code
			if err := l.embed(stage.File(objectName(first-1)), code, stage.File(objectName(first))); err != nil {
				return nil, err
			}
			code = nil
		}
		names = append(names, objectName(first))
	}
	if l.assembly == nil {
		return names, nil
	}
	host, err := os.ReadFile(stage.File(names[0])) // of a host pass, or of a unit that was compiled in one pass
	if err != nil {
		return nil, err
	}
	object, err := l.assembly.object(l.req.Target, host)
	if err != nil {
		return nil, &AssemblyError{Module: l.mod.Name, Target: l.req.Target, Root: l.mod.Assembly.Root, Dir: l.assembly.dir, Err: err}
	}
	return append(names, assemblyFile), os.WriteFile(stage.File(assemblyFile), object, 0o600)
}

// embed wraps the device code of a unit in an object for the linker, in the file `to`. host is the path of the host object.
func (l *link) embed(host string, code [][]byte, to string) error {
	object, err := os.ReadFile(host)
	if err != nil {
		return err
	}
	if l.req.Target.Vendor() == target.CUDA {
		object, err = codeobject.EmbedFatbin(object, code...)
	} else {
		object, err = codeobject.Embed(object, codeobject.Object{Target: l.req.Target.String(), ELF: code[0]})
	}
	if err != nil {
		return fmt.Errorf("link of %s for %s: %w", l.mod.Name, l.req.Target, err)
	}
	return os.WriteFile(to, object, 0o600)
}

// embedding names the layout of the objects with device code.
func (l *link) embedding() string {
	if l.req.Target.Vendor() == target.CUDA {
		return codeobject.FatbinFormat
	}
	return codeobject.Format
}

// description returns the artifact of the link without its library. Its time is that of the
// units and the link.
func (l *link) description(seconds float64) cache.Artifact {
	a := cache.Artifact{
		Module: l.mod.Name, Target: l.req.Target.String(), Part: l.req.Part.String(), Ops: l.ops,
		Toolchain: l.tc.VersionLine, Built: time.Now(), Seconds: seconds,
		LinkKey: l.key, BuildRecordKey: buildRecordKey(l.req),
	}
	for _, u := range l.units {
		a.Units = append(a.Units, u.ref)
		a.Seconds += u.cost
	}
	return a
}

// linkOrCopy gives a stored object another name, by a hard link if the filesystem has
// them.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
