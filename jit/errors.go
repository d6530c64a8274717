package jit

import (
	"fmt"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/shell"
)

// CompileError reports a failed compiler or linker.
type CompileError struct {
	Module, Target string
	Source         string        // relative to the source tree; "" for the link
	Command        []string      // argv
	Dir            string        // its working folder
	Reason         string        // "exit status 1", "it was killed by ..."
	Output         string        // of the compiler, at most 4 MiB
	Timeout        time.Duration // after which it was killed; 0 if it failed for another reason
	Log            string        // file with the command and the output; "" if none could be written

	// Remembered is the time of the failure if the error comes from the cache, because all
	// files that the compiler would read are unchanged. It is zero if the compiler ran now.
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
	fmt.Fprintf(&b, "command (in %s): %s", e.Dir, shell.Join(e.Command))
	if e.Log != "" {
		fmt.Fprintf(&b, "\nlog: %s", e.Log)
	}
	if !e.Remembered.IsZero() {
		fmt.Fprintf(&b, "\nremembered from %s: all files that it read are unchanged, so it did not run again; set AITER_REBUILD=1 to run it",
			e.Remembered.Format(time.RFC3339))
	}
	return b.String()
}

// ChangingError reports a file that changed during each of several compiles, or a compiler
// that changed during a compile.
type ChangingError struct{ Path string }

func (e *ChangingError) Error() string {
	return fmt.Sprintf("%s changed while a compiler ran; build again when no process writes it", e.Path)
}
