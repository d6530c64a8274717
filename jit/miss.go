package jit

import (
	"cmp"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
)

// Cause is the kind of a [Miss]. There are few causes, so that they can be counted.
type Cause string

// The causes.
const (
	CauseNew       Cause = "new"       // never built for the target
	CauseForced    Cause = "forced"    // the user asked for a new build
	CauseSource    Cause = "source"    // the source changed
	CauseHeader    Cause = "header"    // a header changed or is gone, or another file would be found before it
	CauseFlags     Cause = "flags"     // the command line changed
	CauseToolchain Cause = "toolchain" // the compiler or a file that belongs to it changed
	CauseFormat    Cause = "format"    // built by a version of this program that makes other keys
	CauseObject    Cause = "object"    // of a link: an object changed
	CauseLost      Cause = "lost"      // cleaned away or damaged
	CauseUntracked Cause = "untracked" // reads files that no key or list has, so that it runs at each build
	CauseOther     Cause = "other"
)

// Miss states why a lookup found nothing usable. The zero Miss stands for a hit.
type Miss struct {
	Cause Cause  `json:"cause"`
	Path  string `json:"path,omitempty"` // of the file that decides it, "" if none does
	Text  string `json:"-"`              // for people, without the path: "header changed"
}

// String returns a sentence for people: "header changed: src/a.h".
func (m Miss) String() string {
	text := cmp.Or(m.Text, string(m.Cause))
	if m.Path == "" {
		return text
	}
	return text + ": " + m.Path
}

// IsHit reports whether the lookup found something usable.
func (m Miss) IsHit() bool { return m == Miss{} }

// lineMiss returns the miss for a line of a key that differs from the last build.
func lineMiss(label string) Miss {
	kind, path, _ := strings.Cut(label, " ")
	switch kind {
	case "source":
		return Miss{CauseSource, path, "source changed"}
	case "object":
		return Miss{CauseObject, path, "object changed"}
	case "argv", "checkout", "spec", "operators", "signature":
		return Miss{Cause: CauseFlags, Text: describe(label) + " changed"}
	case "toolchain": // "toolchain", "toolchain folders"
		return Miss{Cause: CauseToolchain, Text: label + " changed"}
	case "epoch", "target", "action", "module", "embedding":
		return Miss{Cause: CauseFormat, Text: describe(label) + " changed"}
	}
	return Miss{Cause: CauseOther, Text: describe(label) + " changed"}
}

// describe returns the words for a label of a key's line.
func describe(label string) string {
	switch label {
	case "argv":
		return "flags"
	case "epoch":
		return "cache format"
	case "spec":
		return "part"
	}
	return label
}

// lostMiss returns the miss for a record or file that the cache cannot give.
func lostMiss(what string, err error) Miss {
	return Miss{Cause: CauseLost, Text: what + " (" + err.Error() + ")"}
}

// outdatedMiss returns the miss for a module that another version of this program built,
// false if there is none.
func outdatedMiss(store *cache.Dir, record cache.Key) (Miss, bool) {
	older := store.Outdated(cache.BuildRecord, record)
	return Miss{Cause: CauseFormat, Text: "cache format changed: built by another version of this program (" + older + ")"}, older != ""
}

// check checks one of the unit's stored dependency lists.
func (u *unit) check(list string) Miss {
	stale, err := u.view.CheckStored(u.m.opts.Cache, list)
	if err != nil {
		return lostMiss("dependency list lost", err)
	}
	return staleMiss(stale)
}

// staleMiss returns the miss for a dependency list that does not hold.
func staleMiss(stale deps.Stale) Miss {
	switch stale.Reason {
	case "":
		return Miss{}
	case deps.Shadowed:
		return Miss{CauseHeader, stale.Path, "new file shadows a header"}
	case deps.Relisted:
		return Miss{CauseHeader, stale.Path, "header folder has other names"}
	case deps.Untracked:
		return Miss{CauseUntracked, stale.Path, "macros make the name of an embedded file, so that the unit is compiled at each build"}
	}
	return Miss{CauseHeader, stale.Path, "header " + string(stale.Reason)}
}
