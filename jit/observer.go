package jit

import (
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// Observer receives each step of a build. Several goroutines call it.
type Observer interface {
	Observe(Event)
}

// Step is the kind of an [Event].
type Step string

// The steps of a build.
const (
	ModuleStarted  Step = "module started"
	ModuleFinished Step = "module finished"
	UnitStarted    Step = "unit started" // its compiler starts
	UnitFinished   Step = "unit finished"
	UnitHit        Step = "unit hit"    // found in the cache, no compiler started
	UnitMissed     Step = "unit missed" // not found in the cache, because of Miss
	UnitPublished  Step = "unit published"
	LinkStarted    Step = "link started"
	LinkFinished   Step = "link finished"
	LinkHit        Step = "link hit"
	LinkMissed     Step = "link missed"
	LinkPublished  Step = "link published"
	ToolchainFound Step = "toolchain found"
	Trimmed        Step = "trimmed"
	Waiting        Step = "waiting"     // Holder, another process, runs the same action
	Waited         Step = "waited"      // the wait took Seconds; with Err it failed
	Quarantined    Step = "quarantined" // a corrupt file of the cache was moved to quarantine, because of Reason
	Pulled         Step = "pulled"      // a set was taken from Options.Source in Seconds; with Err, a [*PullError], it was not
	Executed       Step = "executed"    // Options.Executor ran a compile or link in Seconds; with Err it gave no result
	Reloaded       Step = "reloaded"    // calls of a registry run the new code of Module; with Err they run the old code
)

// Event is one step of a build.
type Event struct {
	Step    Step
	Module  string
	Target  string
	Part    string         // "" for the whole module: "causal_conv1d_fwd dtype=float16"
	Source  string         // of a unit; "" for a link or a module
	Values  string         // axis values of the unit, "" if it depends on no axis: "dtype=float16"
	Pass    toolchain.Pass // of a unit that is compiled in two passes
	Status  Status         // of a finished unit, link or module
	Miss    Miss           // of a unit or link that was not in the cache
	Reason  string         // the miss in words, or why a unit was a hit
	Units   int            // number of units of a started module, or of removed artifacts of a trim
	Seconds float64
	Holder  cache.Holder
	Key     cache.Key // of the published result
	Digest  string    // of the published file, or of a toolchain
	Err     error
}

// Unit returns the source of an event's unit, with the pass if the unit has two.
func (e Event) Unit() string { return unitName(e.Source, e.Pass) }

// unitName returns "src/a.hip (device)", for a unit without passes the source.
func unitName(source string, pass toolchain.Pass) string {
	if pass == toolchain.Whole {
		return source
	}
	return source + " (" + string(pass) + ")"
}

// nopObserver ignores all events.
type nopObserver struct{}

func (nopObserver) Observe(Event) {}

// Status is the outcome of an action.
type Status string

// The statuses.
const (
	Hit      Status = "hit"      // found in the cache
	Compiled Status = "compiled" // compiled or linked
)

// since returns the seconds since start.
func since(start time.Time) float64 { return time.Since(start).Seconds() }

// reasonOf returns the reason of an event: its own, or its miss in words.
func reasonOf(e Event) string {
	if e.Reason == "" && !e.Miss.IsHit() {
		return e.Miss.String()
	}
	return e.Reason
}
