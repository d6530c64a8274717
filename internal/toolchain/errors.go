package toolchain

import (
	"fmt"
	"strings"
	"time"

	"github.com/aiter-go/aiter/jit/target"
)

// NotFoundError reports that there is no compiler for a vendor.
type NotFoundError struct {
	Vendor target.Vendor
	Tool   string   // the kind of program: "compiler" if empty
	Named  string   // the variable that names the compiler: "CXX=nonsense"; "" if none does
	Looked []string // each place that was searched and why it has no compiler, in order: "HIPCC=/x/hipcc: no such file"
	Hint   string   // what to do
}

func (e *NotFoundError) Error() string {
	tool := e.Tool
	if tool == "" {
		tool = "compiler"
	}
	return fmt.Sprintf("no %s for %s targets: looked at %s; %s", tool, e.Vendor, strings.Join(e.Looked, ", "), e.Hint)
}

// UnsupportedTargetError reports that the compiler works but cannot build for the target.
type UnsupportedTargetError struct {
	Compiler string        // path
	Version  string        // of the compiler, as it prints it
	Target   target.Target // the requested one
	Reason   string        // as the compiler printed it
}

func (e *UnsupportedTargetError) Error() string {
	return fmt.Sprintf("%s (%s) cannot build for %s: %s; use a toolchain that supports %s, or another target",
		e.Compiler, e.Version, e.Target, e.Reason, e.Target.Arch())
}

// ProbeError reports a program whose reply to a query is not that of a compiler, or of a disassembler.
type ProbeError struct {
	Command []string      // program and arguments
	Output  string        // of the command
	Timeout time.Duration // after which it was killed, 0 if it exited
	Err     error         // why it failed
}

func (e *ProbeError) Error() string {
	how := e.Err.Error()
	if e.Timeout > 0 {
		how = fmt.Sprintf("it did not end within %s", e.Timeout)
	}
	return fmt.Sprintf("identify the compiler: %s: %s%s; check that the command runs by hand",
		strings.Join(e.Command, " "), how, quoteOutput(e.Output))
}

// Unwrap returns Err.
func (e *ProbeError) Unwrap() error { return e.Err }

// TemporaryFolderError reports a compiler that does not respond because it has no folder for temporary files.
type TemporaryFolderError struct {
	Compiler string // path
	Err      error  // why the folder cannot be used
	Probe    error  // the *ProbeError
}

func (e *TemporaryFolderError) Error() string {
	return fmt.Sprintf("%s needs a folder for temporary files: %v; set TMPDIR to a writable folder, or use only prebuilt kernels: "+
		"set AITER_NO_COMPILE=1 and list their folders in AITER_JIT_PATH", e.Compiler, e.Err)
}

// Unwrap returns the *ProbeError.
func (e *TemporaryFolderError) Unwrap() error { return e.Probe }

// RootError reports that the files that a compiler names cannot be found on this machine.
type RootError struct {
	Compiler string   // path
	Missing  string   // the first file it names that was not found
	Tried    []string // the folders below which it was searched
}

func (e *RootError) Error() string {
	return fmt.Sprintf("%s uses %s, which is not below any of %s; set AITER_TOOLCHAIN_ROOT to the root folder of the compiler, "+
		"or name that folder in the wrapper script in a line \"# aiter-root: FOLDER\"",
		e.Compiler, e.Missing, strings.Join(e.Tried, ", "))
}

// maxQuoted bounds how much of a compiler's output an error repeats, in bytes.
const maxQuoted = 600

// quoteOutput returns the end of a compiler's output for an error.
func quoteOutput(out string) string {
	out = strings.TrimSpace(out)
	if out == "" {
		return ""
	}
	if len(out) > maxQuoted {
		out = "..." + out[len(out)-maxQuoted:]
	}
	return " (it printed: " + out + ")"
}
