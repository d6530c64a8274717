package jit

import "strings"

// Cause is what kind of reason there was to compile a unit. There are few, so
// that they can be counted.
type Cause string

// The causes.
const (
	CauseNew       Cause = "new"       // never built for the target
	CauseForced    Cause = "forced"    // asked for
	CauseSource    Cause = "source"    // the source changed
	CauseHeader    Cause = "header"    // a header changed, went, or another is found before it
	CauseFlags     Cause = "flags"     // the command line changed
	CauseToolchain Cause = "toolchain" // a compiler or what belongs to it changed
	CauseFormat    Cause = "format"    // this version of the program keys differently
	CauseLost      Cause = "lost"      // it was there, and was cleaned away or damaged
	CauseOther     Cause = "other"
)

// CauseOf returns the kind of an event's or a result's reason to compile.
func CauseOf(reason string) Cause {
	for _, c := range []struct {
		begins string
		cause  Cause
	}{
		{"never built", CauseNew}, {"forced", CauseForced}, {"source ", CauseSource},
		{"header ", CauseHeader}, {"new file shadows a header", CauseHeader},
		{"flags ", CauseFlags}, {"toolchain ", CauseToolchain},
		{"target ", CauseFormat}, {"action ", CauseFormat}, {"cache format ", CauseFormat},
		{"object lost", CauseLost}, {"not in the cache", CauseLost}, {"cache: no", CauseLost},
	} {
		if strings.HasPrefix(reason, c.begins) {
			return c.cause
		}
	}
	return CauseOther
}
