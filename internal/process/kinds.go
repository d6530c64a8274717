package process

import (
	"path"
	"strings"
)

// Kind is a kind of access to a name in the filesystem.
type Kind byte

// The kinds of access.
const (
	Read    Kind = 'r' // a regular file was opened for reading, or executed
	Listed  Kind = 'd' // a folder was opened
	Found   Kind = 'f' // the name exists; its content was not read
	Linked  Kind = 'l' // a symbolic link was read
	Missing Kind = 'm' // the name does not exist
)

// Access is one name that a traced process looked up.
type Access struct {
	Kind    Kind
	Path    string // absolute, in the filesystem of the process
	Inside  bool   // the process was in a container: it had another root folder or other mounts than this process
	Program bool   // the file was executed
	Dev     uint64 // of the file, for Read
	Ino     uint64
}

// Trace lists the names that a command and its children looked up, except those that they wrote themselves.
type Trace struct {
	Accesses   []Access
	Incomplete string // why names may be missing; "" if the trace is complete
}

// UntraceableError reports that a process cannot trace another on this machine. The command has not run, or has had the
// effects of an untraced run.
type UntraceableError struct{ Err error }

func (e *UntraceableError) Error() string { return "trace a process: " + e.Err.Error() }

// Unwrap returns the system's error.
func (e *UntraceableError) Unwrap() error { return e.Err }

// CleanPath removes "." and repeated slashes from a path. It returns a path with ".." unchanged, because removing ".."
// after a symbolic link would change the meaning of the path.
func CleanPath(p string) string {
	if strings.Contains(p, "..") {
		return p
	}
	return path.Clean(p)
}
