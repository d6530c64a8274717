package jit

import (
	"fmt"
	"strings"
	"time"
)

// CompileError reports a failed compiler or linker.
type CompileError struct {
	Module, Target string
	Source         string   // relative to the source tree; "" for the link
	Command        []string // argv
	Dir            string   // folder it ran in
	Reason         string   // "exit status 1", "it was killed by ..."
	Output         string   // of the compiler, unchanged
	Log            string   // file with the command and the whole output; "" if none could be written

	// Remembered is the time of the failure if the error comes from the cache: all files
	// that the compiler would read are unchanged. Zero: the compiler has just failed.
	Remembered time.Time
}

func (e *CompileError) Error() string {
	what := "link of " + e.Module
	if e.Source != "" {
		what = "compile of " + e.Source
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s for %s failed: %s\n", what, e.Target, e.Reason)
	if out := strings.TrimRight(e.Output, "\n"); out != "" {
		fmt.Fprintf(&b, "%s\n", out)
	}
	fmt.Fprintf(&b, "command (in %s): %s", e.Dir, Quote(e.Command))
	if e.Log != "" {
		fmt.Fprintf(&b, "\nlog: %s", e.Log)
	}
	if !e.Remembered.IsZero() {
		fmt.Fprintf(&b, "\nthis was at %s; nothing that it read has changed since, so it was not run again (AITER_REBUILD=1 does)", e.Remembered.Format(time.RFC3339))
	}
	return b.String()
}

// ChangingError reports sources that were edited in each of several compiles.
type ChangingError struct{ Path string }

func (e *ChangingError) Error() string {
	return fmt.Sprintf("%s keeps changing while it is compiled; build again when the edits have settled", e.Path)
}

// Quote returns argv as a line for a shell.
func Quote(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsFunc(a, needsQuote) {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

func needsQuote(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=+,./:@%^", r))
}
