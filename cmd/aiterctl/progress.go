package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/aiter-go/aiter/jit"
)

// progress tells how a build goes: lines, or on a terminal one live line.
type progress struct {
	screen *screen
	now    func() time.Time
	live   bool          // on a terminal
	stop   chan struct{} // closed to end the live line, nil when there is none
	done   sync.WaitGroup

	mu       sync.Mutex
	units    int // of all modules begun
	finished int // of them
	left     map[moduleTarget]int
	running  map[job]time.Time
}

type moduleTarget struct{ module, target, spec string }

// job is one compiler or linker at work.
type job struct {
	moduleTarget moduleTarget
	unit         string
	values       string // of axes that it is compiled for
}

var _ jit.Observer = (*progress)(nil)

// newProgress returns the observer of a build; with --json or --quiet it keeps
// silent.
func (a *app) newProgress() *progress {
	p := &progress{
		now:  time.Now,
		left: map[moduleTarget]int{}, running: map[job]time.Time{},
	}
	if a.json || a.quiet {
		return p
	}
	p.screen = a.err
	if a.err.terminal {
		p.live, p.stop = true, make(chan struct{})
		p.done.Go(p.redraw)
	}
	return p
}

// close takes the live line away.
func (p *progress) close() {
	if p.stop != nil {
		close(p.stop)
		p.done.Wait()
		p.stop = nil
	}
}

const redrawEvery = 100 * time.Millisecond

func (p *progress) redraw() {
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	defer p.screen.setStatus("")
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.screen.setStatus(p.line())
		}
	}
}

// line is the live line: "[3/8] fwd/fwd.hip for gfx942 12s, ...".
func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.running) == 0 {
		return ""
	}
	jobs := slices.SortedFunc(maps.Keys(p.running), func(a, b job) int {
		return cmp.Or(p.running[a].Compare(p.running[b]), cmp.Compare(a.unit, b.unit), cmp.Compare(a.moduleTarget.target, b.moduleTarget.target), cmp.Compare(a.values, b.values))
	})
	text := fmt.Sprintf("[%d/%d]", p.finished, p.units)
	for i, j := range jobs {
		sep := ", "
		if i == 0 {
			sep = " "
		}
		text += fmt.Sprintf("%s%s for %s %.0fs", sep, path.Base(j.unit), unitTarget(j.moduleTarget.target, j.values), p.now().Sub(p.running[j]).Seconds())
	}
	return text
}

// Observe implements [jit.Observer].
func (p *progress) Observe(e jit.Event) {
	p.count(e)
	if p.screen == nil {
		return
	}
	if text := words(e, p.live); text != "" {
		fmt.Fprintln(p.screen, text)
	}
}

func (p *progress) count(e jit.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mt := moduleTarget{e.Module, e.Target, e.Part}
	j := job{mt, e.Unit(), e.Values}
	switch e.Step {
	case jit.ModuleStarted:
		p.units += e.Units
		p.left[mt] = e.Units
	case jit.UnitStarted:
		p.running[j] = p.now()
	case jit.UnitFinished:
		delete(p.running, j)
		p.finish(mt, 1)
	case jit.LinkStarted:
		p.running[job{mt, "link " + partName(e.Module, e.Part), ""}] = p.now()
	case jit.LinkFinished:
		delete(p.running, job{mt, "link " + partName(e.Module, e.Part), ""})
	case jit.ModuleFinished:
		p.finish(mt, p.left[mt]) // the units that the cache had
	}
}

func (p *progress) finish(mt moduleTarget, n int) {
	n = min(n, p.left[mt])
	p.left[mt] -= n
	p.finished += n
}

// words is the line for an event, "" for none. The live line shows what is
// running, so that beside it only what is done is told.
func words(e jit.Event, live bool) string {
	where := unitTarget(e.Target, e.Values)
	switch {
	case e.Step == jit.UnitFinished && e.Err == nil && live:
		return fmt.Sprintf("compiled %s for %s in %.2f s: %s", e.Unit(), where, e.Seconds, e.Reason)
	case e.Step == jit.UnitStarted && !live:
		return fmt.Sprintf("compile %s for %s: %s", e.Unit(), where, e.Reason)
	case e.Step == jit.UnitFinished && e.Err == nil:
		return fmt.Sprintf("compiled %s for %s in %.2f s", e.Unit(), where, e.Seconds)
	case e.Step == jit.Waiting && e.Holder.PID != os.Getpid(): // else the line before says it: targets wait for what they share
		what := e.Unit()
		if e.Source == "" {
			what = "link of " + partName(e.Module, e.Part)
		}
		return fmt.Sprintf("waiting for %s: %s for %s", e.Holder, what, where)
	}
	return ""
}
