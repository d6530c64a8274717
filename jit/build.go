package jit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/sys"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// Request names a module or a part of it, and a target to build it for.
type Request struct {
	Module string
	Target target.Target
	Part   opconfig.Part // zero: the whole module
}

func (r Request) String() string {
	if r.Part.Whole() {
		return r.Module + " for " + r.Target.String()
	}
	return r.Module + " (" + r.Part.String() + ") for " + r.Target.String()
}

// words is like String, but describes the part in words.
func (r Request) words() string {
	if r.Part.Whole() {
		return r.String()
	}
	return r.Module + " (" + opconfig.Words(r.Part.String()) + ") for " + r.Target.String()
}

// Result is the outcome of a [Request]. If the build failed, Err is set instead of
// Artifact.
type Result struct {
	Request
	Artifact cache.Artifact
	Status   Status // Hit if nothing was compiled or linked
	Seconds  float64
	Units    []UnitResult
	Err      error

	record   buildRecord // of a successful build
	linkMiss Miss        // why the link ran
	linked   bool        // the link ran
}

// Build builds the requests in parallel and returns a result for each, in order. A failure
// does not stop the other requests; the error joins all failures, such as [*CompileError].
// If the context has ended, its cause is the error of each request, also of those that the cache has.
// If the cache has an up-to-date library of the whole module, a request for a part returns
// that library.
func (m *Manager) Build(ctx context.Context, reqs ...Request) ([]Result, error) {
	m.refresh()
	m.opts.Cache.SweepJobs() // compilers of killed processes may still run
	s := m.newSession()
	results := make([]Result, len(reqs))
	var wg sync.WaitGroup
	for i, r := range reqs {
		wg.Go(func() { results[i] = s.build(ctx, r) })
	}
	wg.Wait()
	m.retryFull(ctx, results)
	m.opts.Cache.Sweep()
	m.opts.Cache.Count(counts(results)...)
	m.trimAfter(results)
	err := joinFailures(results)
	if err := m.opts.Memo.Save(); err != nil {
		m.opts.Logger.Debug("cannot save the digests of files; the next process reads the files again", "error", err)
	}
	return results, err
}

// joinFailures joins the errors of the results. Requests that fail with the same text, such as
// those without a compiler, share one error.
func joinFailures(results []Result) error {
	var causes []error
	requests := map[string][]string{} // by the text of the error
	for _, r := range results {
		if r.Err == nil {
			continue
		}
		text := r.Err.Error()
		if requests[text] == nil {
			causes = append(causes, r.Err)
		}
		requests[text] = append(requests[text], r.Request.words())
	}
	for i, cause := range causes {
		causes[i] = fmt.Errorf("build of %s: %w", strings.Join(requests[cause.Error()], ", "), cause)
	}
	return errors.Join(causes...)
}

// session is one call of [Manager.Build] or of a similar method. It reads each file once.
type session struct {
	m     *Manager
	mu    sync.Mutex
	views map[viewKey]*deps.View
}

// viewKey distinguishes views: by the source tree, and by the paths of a toolchain.
type viewKey struct {
	tree                    deps.Tree
	compiler, root, include string
}

func (m *Manager) newSession() *session { return &session{m: m, views: map[viewKey]*deps.View{}} }

// view returns the view of the filesystem for a source tree and a toolchain. Toolchains of
// several targets share a view if they read the same files.
func (s *session) view(tree deps.Tree, tc *toolchain.Toolchain) *deps.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := viewKey{tree, tc.Compiler, tc.Root, strings.Join(tc.IncludeDirs, "\x00")}
	v := s.views[key]
	if v == nil {
		v = deps.NewView(tree, s.m.opts.Memo, tc)
		s.views[key] = v
	}
	return v
}

// build handles one request: from the whole module, by a build, or without a compiler from a
// prebuilt artifact.
func (s *session) build(ctx context.Context, r Request) (res Result) {
	start := time.Now()
	res = Result{Request: r, Status: Hit}
	ctx, end := s.m.begin(ctx, Building, requestEvent(r, Event{Step: ModuleStarted}))
	defer func() {
		res.Seconds = since(start)
		finished := Event{Step: ModuleFinished, Status: res.Status, Seconds: res.Seconds, Err: res.Err}
		s.observe(r, finished)
		end(requestEvent(r, finished))
	}()
	if res.Err = cmp.Or(context.Cause(ctx), sys.Unsupported("building and loading kernels")); res.Err != nil {
		return res
	}
	if s.useWholeModule(ctx, &res) {
		return res
	}
	p, err := s.plan(ctx, r)
	if err != nil {
		res.Err = s.usePrebuiltOrPulled(ctx, &res, err)
		return res
	}
	if s.usePulled(ctx, &res, p) {
		return res
	}
	s.observe(r, Event{Step: ToolchainFound, Digest: p.link.tc.Digest, Reason: p.link.tc.VersionLine})
	s.observe(r, Event{Step: ModuleStarted, Units: len(p.units)})
	log := newCompileLog(s.m.opts.Logger, r)
	res.Err = p.build(ctx, &res, log)
	log.finish(res.Err)
	if res.Err != nil {
		return res
	}
	res.record = newBuildRecord(&res, p.link)
	if err := s.m.saveBuildRecord(r, res.record, p.link.tc); err != nil {
		s.m.opts.Logger.Debug("cannot save the build record; the next build cannot name what changed", "error", err)
	}
	return res
}

// observe reports an event of a module.
func (s *session) observe(r Request, e Event) {
	e = requestEvent(r, e)
	logEvent(s.m.opts.Logger, e)
	s.m.opts.Observer.Observe(e)
}
