package jit

import (
	"cmp"
	"errors"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
)

// Cause is the kind of a [Miss]. There are few causes, so that they can be counted.
type Cause string

// The causes.
const (
	CauseNew       Cause = "new"       // never built for the target
	CauseForced    Cause = "forced"    // the user requested a new build
	CauseSource    Cause = "source"    // the source changed
	CauseHeader    Cause = "header"    // a header changed or is gone, or a new file shadows it
	CauseFlags     Cause = "flags"     // the command line changed
	CauseToolchain Cause = "toolchain" // the compiler or a file that belongs to it changed
	CauseFormat    Cause = "format"    // built by a version of this program with other keys
	CauseObject    Cause = "object"    // of a link: an object changed
	CauseLost      Cause = "lost"      // cleaned away or damaged
	CauseUntracked Cause = "untracked" // the action reads unknown files, so that it runs at each build
	CauseOther     Cause = "other"
)

// Miss is the reason why a lookup found nothing usable. The zero Miss stands for a hit.
type Miss struct {
	Cause Cause  `json:"cause"`
	Path  string `json:"path,omitempty"` // of the file that caused it, "" if no file did
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
	case "table":
		return Miss{CauseHeader, path, "loader table changed"}
	case "code":
		if name, one := strings.CutPrefix(label, codeObjectLabel); one {
			return Miss{CauseObject, name, "code object changed"}
		}
		return Miss{Cause: CauseObject, Text: "code objects changed"}
	case "argv", "checkout", "spec", "operators", "signature", assemblyLabel:
		return Miss{Cause: CauseFlags, Text: labelText(label) + " changed"}
	case "toolchain": // "toolchain", "toolchain folders"
		return Miss{Cause: CauseToolchain, Text: label + " changed"}
	case "epoch", "target", "action", "module", "embedding":
		return Miss{Cause: CauseFormat, Text: labelText(label) + " changed"}
	}
	return Miss{Cause: CauseOther, Text: labelText(label) + " changed"}
}

// labelText returns the words for the label of a key's line.
func labelText(label string) string {
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

// lostMiss returns the miss for a record or file that should be in the cache and is absent or damaged.
func lostMiss(what string, err error) Miss {
	text := what + ": " + err.Error()
	if gone, ok := errors.AsType[*cache.MissError](err); ok {
		if what == "the result" {
			what = "the " + string(gone.Kind)
		}
		text = what + " " + cache.Key(gone.Key).Short() + " is not in the cache"
		if why, damaged := strings.CutPrefix(gone.Reason, "corrupt: "); damaged {
			text = what + " " + cache.Key(gone.Key).Short() + " is damaged: " + why
		}
	}
	return Miss{Cause: CauseLost, Text: text}
}

// outdatedMiss returns the miss for a module that another version of this program built,
// false if there is none.
func outdatedMiss(store *cache.Dir, record cache.Key) (Miss, bool) {
	older := store.Outdated(cache.BuildRecord, record)
	return Miss{Cause: CauseFormat, Text: "cache format changed: built by another version of this program (" + older + ")"}, older != ""
}

// check returns the miss for a stored dependency list that is stale, the zero Miss if the list
// holds.
func (u *unit) check(list string) Miss {
	stale, err := u.view.CheckStored(u.m.opts.Cache, list)
	if err != nil {
		return lostMiss("the dependency list", err)
	}
	return staleMiss(stale)
}

// staleMiss returns the miss for the first stale entry of a dependency list.
func staleMiss(stale deps.Stale) Miss {
	switch stale.Reason {
	case "":
		return Miss{}
	case deps.Shadowed:
		return Miss{CauseHeader, stale.Path, "new file shadows a header"}
	case deps.Relisted:
		return Miss{CauseHeader, stale.Path, "header folder has other names"}
	case deps.Untracked:
		return Miss{CauseUntracked, stale.Path, "a macro makes the name of an embedded file, so that the unit is compiled at each build"}
	}
	return Miss{CauseHeader, stale.Path, "header " + string(stale.Reason)}
}
