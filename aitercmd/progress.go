package aitercmd

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/jit"
)

// progress shows the progress of a build: as lines and, on a terminal, as a status line.
type progress struct {
	terminal *term.Terminal
	now      func() time.Time
	live     bool   // the output is a terminal with a status line
	stop     func() // removes the status line

	mu         sync.Mutex
	units      int // of all modules that have started
	finished   int // of these units
	unfinished map[partTarget]int
	running    map[job]time.Time
	compilers  map[string]string // by target: their versions
}

// partTarget identifies a part request.
type partTarget struct{ module, target, part string }

// job is one running compiler or linker.
type job struct {
	partTarget partTarget
	unit       string
	values     string // of the axes
}

var _ jit.Observer = (*progress)(nil)

// newProgress returns the observer of a build. It prints nothing with --json or
// --quiet.
func (a *app) newProgress() *progress {
	p := &progress{
		now:        time.Now,
		unfinished: map[partTarget]int{}, running: map[job]time.Time{}, compilers: map[string]string{},
		stop: func() {},
	}
	if a.json || a.quiet {
		return p
	}
	p.terminal = a.err
	if a.err.Interactive() {
		p.live, p.stop = true, a.err.KeepStatus(p.line)
	}
	return p
}

// close removes the status line. It may be called more than once.
func (p *progress) close() { p.stop() }

// line returns the status line: "[3/8] fwd/fwd.hip for gfx942 12s, ...".
func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.running) == 0 {
		return ""
	}
	jobs := slices.SortedFunc(maps.Keys(p.running), func(a, b job) int {
		return cmp.Or(
			p.running[a].Compare(p.running[b]), cmp.Compare(a.unit, b.unit),
			cmp.Compare(a.partTarget.target, b.partTarget.target), cmp.Compare(a.values, b.values),
		)
	})
	text := fmt.Sprintf("[%d/%d]", p.finished, p.units)
	for i, j := range jobs {
		sep := ", "
		if i == 0 {
			sep = " "
		}
		text += fmt.Sprintf("%s%s for %s %.0fs",
			sep, path.Base(j.unit), unitTarget(j.partTarget.target, j.values), p.now().Sub(p.running[j]).Seconds())
	}
	return text
}

// Observe implements [jit.Observer].
func (p *progress) Observe(e jit.Event) {
	p.count(e)
	if p.terminal == nil {
		return
	}
	if text := eventLine(e, p.live); text != "" {
		fmt.Fprintln(p.terminal, text)
	}
}

// count updates the numbers of units and the running jobs.
func (p *progress) count(e jit.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pt := partTarget{e.Module, e.Target, e.Part}
	j := job{pt, e.Unit(), e.Values}
	switch e.Step {
	case jit.ToolchainFound:
		p.compilers[e.Target] = e.Reason
	case jit.ModuleStarted:
		p.units += e.Units
		p.unfinished[pt] = e.Units
	case jit.UnitStarted:
		p.running[j] = p.now()
	case jit.UnitFinished:
		delete(p.running, j)
		p.finish(pt, 1)
	case jit.LinkStarted:
		p.running[job{pt, "link " + partName(e.Module, e.Part), ""}] = p.now()
	case jit.LinkFinished:
		delete(p.running, job{pt, "link " + partName(e.Module, e.Part), ""})
	case jit.ModuleFinished:
		p.finish(pt, p.unfinished[pt]) // the rest are hits
	}
}

// finish counts up to n units as finished.
func (p *progress) finish(pt partTarget, n int) {
	n = min(n, p.unfinished[pt])
	p.unfinished[pt] -= n
	p.finished += n
}

// eventLine returns the line for an event, "" for none. live is set if a status line
// shows the running jobs; then only finished jobs have lines.
func eventLine(e jit.Event, live bool) string {
	where := unitTarget(e.Target, e.Values)
	switch {
	case e.Step == jit.UnitFinished && e.Err == nil && live:
		return fmt.Sprintf("compiled %s for %s in %.2f s: %s", e.Unit(), where, e.Seconds, e.Reason)
	case e.Step == jit.UnitStarted && !live:
		return fmt.Sprintf("compile %s for %s: %s", e.Unit(), where, e.Reason)
	case e.Step == jit.UnitFinished && e.Err == nil:
		return fmt.Sprintf("compiled %s for %s in %.2f s", e.Unit(), where, e.Seconds)
	case e.Step == jit.Waiting && e.Holder.PID != os.Getpid(): // a unit of this process has its own line
		what := e.Unit()
		if e.Source == "" {
			what = "link of " + partName(e.Module, e.Part)
		}
		return fmt.Sprintf("waiting for %s: %s for %s", e.Holder, what, where)
	}
	return ""
}
