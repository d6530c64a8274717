package jit

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// link makes the shared library of a module for a target from its objects.
type link struct {
	m              *Manager
	tc             *toolchain.Toolchain
	mod            *opconfig.Module
	target         target.Target
	part           opconfig.Part // of the module, that the library is
	ops            []string      // that the library holds
	sources        []string      // of its units
	flags          []string
	timeout        time.Duration
	log            *zerolog.Logger
	recorded       func() cache.Lines // of the last build, none if there was none
	held           *heldObjects
	view           *deps.View
	trustToolchain bool // as of a unit

	lines cache.Lines
	key   cache.Key
}

func (l *link) identify(units []UnitResult) {
	l.lines = nil
	l.lines.Add("epoch", epoch)
	l.lines.Add("action", "link")
	l.lines.Add("target", l.target.String())
	l.lines.Add("toolchain", l.tc.Digest)
	l.lines.Add("toolchain folders", l.tc.Folders)
	l.lines.Add("module", l.mod.Name)
	if !l.part.Whole() {
		l.lines.Add("spec", l.part.String())
	}
	names := make([]string, len(units))
	for i := range units {
		names[i] = objectName(i)
	}
	if slices.ContainsFunc(units, func(u UnitResult) bool { return u.Pass == toolchain.Device }) {
		l.lines.Add("embedding", codeobject.Format)
	}
	argv := l.argv(rootMark, names, objectMark)
	// Keys have an option that linkers are not given, so that caches stay valid.
	argv = slices.Insert(argv, slices.Index(argv, "--build-id=sha1")+1, "-Xlinker", "--dependency-file="+depMark)
	l.lines.Add("argv", strings.Join(argv[1:], "\x00"))
	if len(l.ops) > 0 { // that the library was seen to have
		l.lines.Add("operators", strings.Join(slices.Sorted(slices.Values(l.ops)), " "))
	}
	for _, u := range units {
		l.lines.Add("object "+unitName(u.Source, u.Pass), u.ref.Object)
	}
	l.key = l.lines.Key()
}

// objectName is what an object is called while it is linked: its path must
// not show in the library.
func objectName(i int) string { return fmt.Sprintf("unit%d.o", i) }

func (l *link) argv(root string, objects []string, output string) []string {
	return l.tc.LinkArgs(toolchain.Link{Objects: objects, Output: output, Flags: l.flags, Target: l.target, Root: root})
}

// build returns the artifact, linking when the cache has none.
func (l *link) build(ctx context.Context, res *Result) (cache.Artifact, error) {
	l.identify(res.Units)
	compiled := compiledAny(res.Units)
	if compiled {
		res.Status = Compiled
	}
	force := compiled && l.m.claimForced(l.key)
	a, miss := l.lookup(force)
	if miss.IsHit() {
		return a, nil
	}
	if f := l.lastFailure(); l.wouldRepeat(f) && !force {
		return cache.Artifact{}, f.cachedError()
	}
	l.observe(Event{Step: LinkMissed, Miss: miss})
	res.linkMiss = miss
	a, err := l.buildLocked(ctx, res, force)
	if err != nil && force {
		l.m.unclaimForced(l.key)
	}
	return a, err
}

// buildLocked makes sure that one process alone links.
func (l *link) buildLocked(ctx context.Context, res *Result, force bool) (cache.Artifact, error) {
	before := l.lastFailure()
	wait := &lockWait{observe: l.observe}
	turn, err := l.m.acquire(ctx, ticket{linkRank, func() {}}, cache.LockRequest{
		Key: l.key, What: "link " + Request{l.mod.Name, l.target, l.part}.String(), Timeout: l.m.lockTimeout(l.timeout),
		Waiting: wait.begin,
	})
	wait.end(err)
	if err != nil {
		return cache.Artifact{}, err
	}
	defer turn.release()
	if a, miss := l.lookup(force); miss.IsHit() {
		return a, nil
	}
	if failed := l.failureWhileWaiting(before); failed != nil && !force {
		return cache.Artifact{}, failed
	}
	if err := turn.acquireSlot(ctx); err != nil {
		return cache.Artifact{}, err
	}
	res.Status, res.linked = Compiled, true
	return l.run(ctx, res)
}

// observe tells an event of this link.
func (l *link) observe(e Event) {
	e.Module, e.Target, e.Part = l.mod.Name, l.target.String(), l.part.String()
	e.Reason = reasonOf(e)
	logEvent(l.log, e)
	l.m.opts.Observer.Observe(e)
}

func compiledAny(units []UnitResult) bool {
	for _, u := range units {
		if u.Status == Compiled {
			return true
		}
	}
	return false
}

// lookup finds the artifact unless force asks for another link.
func (l *link) lookup(force bool) (cache.Artifact, Miss) {
	if force {
		return cache.Artifact{}, Miss{Cause: CauseForced}
	}
	return l.find()
}

// find finds the artifact. The key leads to the artifact: objects and flags decide its bytes,
// except where flags name files, whose content no key has. Such a link runs at
// each build. A prebuilt library is used with the files that its build read.
func (l *link) find() (a cache.Artifact, miss Miss) {
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
		return cache.Artifact{}, l.newMiss(err)
	}
	l.observe(Event{Step: LinkHit, Status: Hit})
	a.Ops = l.ops // as the configuration has them now
	return a, Miss{}
}

// newMiss returns the miss of a key that leads to no artifact: the first line that
// differs from the last build's.
func (l *link) newMiss(err error) Miss {
	last := l.recorded()
	if last == nil {
		return Miss{Cause: CauseNew, Text: "never linked for " + l.target.String()}
	}
	for _, line := range l.lines {
		if before, ok := last.Get(line.Label); !ok || before != line.Value {
			return lineMiss(line.Label)
		}
	}
	return lostMiss("library lost", err)
}

// isFor fails with [*cache.WrongRecordError] when the artifact is not of the link's
// module, target and part. The artifact's own link key may differ: links of several
// keys may give one library.
func (l *link) isFor(a cache.Artifact) error {
	want := Request{l.mod.Name, l.target, l.part}.String()
	if a.Name() != want {
		return &cache.WrongRecordError{Got: a.Name(), Want: want}
	}
	return nil
}

func (l *link) run(ctx context.Context, res *Result) (cache.Artifact, error) {
	l.observe(Event{Step: LinkStarted, Miss: res.linkMiss})
	start := time.Now()
	a, err := l.runOnce(ctx, res)
	l.observe(Event{Step: LinkFinished, Status: Compiled, Seconds: since(start), Err: err})
	return a, err
}

// runOnce links copies of the objects in a stage. Their fixed names make equal
// objects give equal bytes anywhere.
func (l *link) runOnce(ctx context.Context, res *Result) (a cache.Artifact, err error) {
	stage, err := l.m.opts.Cache.NewStage()
	if err != nil {
		return a, err
	}
	defer stage.Close()
	objects, err := l.gather(stage, res.Units)
	if err != nil {
		return a, err
	}
	start := time.Now()
	if err := l.invoke(ctx, stage, objects); err != nil {
		return a, err
	}
	return l.publish(stage, res, since(start))
}

// publish stores the library, then the records that lead to it.
func (l *link) publish(stage *cache.Stage, res *Result, cost float64) (cache.Artifact, error) {
	store := l.m.opts.Cache
	a, err := store.AddArtifact(stage, stage.File(l.output()), l.describe(res, cost))
	if err != nil {
		return a, err
	}
	l.observe(Event{Step: LinkPublished, Key: l.key, Digest: a.Digest})
	_ = store.Forget(cache.Failure, l.key)
	return a, store.Put(cache.Linked, l.key, []byte(a.ID))
}

func (l *link) output() string { return l.mod.Name + ".so" }

// gather puts the objects into the stage and returns their names.
func (l *link) gather(stage *cache.Stage, units []UnitResult) ([]string, error) {
	var names []string
	for i, u := range units {
		put := linkOrCopy
		if u.Pass == toolchain.Device { // after the host's of the same unit
			put = l.embed(stage.File(objectName(i - 1)))
		}
		if err := l.held.place(u.ref, stage.File(objectName(i)), put); err != nil {
			return nil, err
		}
		names = append(names, objectName(i))
	}
	return names, nil
}

// embed returns what makes a linker's object of a code object, for the host object
// at that path.
func (l *link) embed(host string) func(from, to string) error {
	return func(from, to string) error {
		object, err := os.ReadFile(host)
		if err != nil {
			return err
		}
		code, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		object, err = codeobject.Embed(object, codeobject.Object{Target: l.target.String(), ELF: code})
		if err != nil {
			return fmt.Errorf("link of %s for %s: %w", l.mod.Name, l.target, err)
		}
		return os.WriteFile(to, object, 0o600)
	}
}

// invoke runs the linker and checks the library. A failure is a [*CompileError].
func (l *link) invoke(ctx context.Context, stage *cache.Stage, objects []string) error {
	c := command{argv: l.argv(stage.Path, objects, l.output()), dir: stage.Path, env: append(l.tc.Environ(), "TMPDIR="+stage.Path), timeout: l.timeout}
	out, err := c.run(ctx)
	if err != nil {
		return err
	}
	if info, err := os.Stat(stage.File(l.output())); out.reason == "" && (err != nil || info.Size() == 0) {
		out.reason = "it ended well but wrote no library"
	}
	if out.reason == "" {
		out.reason = checkLibrary(stage.File(l.output()), machineOf(stage.Path, objects))
	}
	if out.reason == "" {
		out.reason = l.wrongExports(stage.File(l.output()))
	}
	if out.reason == "" {
		return nil
	}
	return l.fail(c, out)
}

func (l *link) describe(res *Result, seconds float64) cache.Artifact {
	a := cache.Artifact{
		Module: l.mod.Name, Target: l.target.String(), Part: l.part.String(), Ops: l.ops, Toolchain: l.tc.VersionLine, Built: time.Now(), Seconds: seconds,
		LinkKey: l.key, BuildRecordKey: buildRecordKey(res.Request),
	}
	for _, u := range res.Units {
		a.Units = append(a.Units, u.ref)
		a.Seconds += u.cost
	}
	return a
}

// linkOrCopy puts a stored object under another name; a hard link where the
// filesystem has them.
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
