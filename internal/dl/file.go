//go:build linux

package dl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
)

// OpenFile loads the library in the open file f, even if another file has taken its
// name. The library has the name of f. The caller closes f. The error is an
// *OpenError.
//
// The dynamic linker opens a name below /proc that leads to the descriptor. If
// /proc is not mounted, OpenFile checks that the file's own name leads to f, and
// the dynamic linker opens that name. Another process can exchange the file
// between the two.
func OpenFile(f *os.File, flags Flags) (*Library, error) {
	handle, err := openFile(f, flags)
	if err != nil {
		return nil, &OpenError{Attempts: []Attempt{{Name: f.Name(), Reason: err.Error()}}}
	}
	return &Library{handle: handle, name: f.Name()}, nil
}

func openFile(f *os.File, flags Flags) (uintptr, error) {
	fd, err := duplicate(f)
	if err != nil {
		return 0, fmt.Errorf("keep the library open: %w", err)
	}
	name, ok := procName(f, fd)
	if !ok {
		_ = syscall.Close(int(fd))
		return openByName(f, flags)
	}
	// Debuggers open a library by the name that it was loaded with, so the
	// descriptor stays open unless the process had loaded the library already.
	handle, err := open(name, flags|Loaded)
	if err == nil {
		_ = syscall.Close(int(fd))
		return handle, nil
	}
	if handle, err = open(name, flags); err != nil {
		_ = syscall.Close(int(fd))
		return 0, errors.New(strings.ReplaceAll(err.Error(), name, f.Name()))
	}
	return handle, nil
}

// openByName opens f by its own name. It fails if the name does not lead to f.
func openByName(f *os.File, flags Flags) (uintptr, error) {
	if !leadsTo(f.Name(), f) {
		return 0, errExchanged
	}
	return open(f.Name(), flags)
}

// duplicate returns another descriptor of f, which child processes do not inherit.
func duplicate(f *os.File) (uintptr, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return 0, errno
	}
	return fd, nil
}

// procName returns a path of the descriptor fd, and reports whether the path leads to
// f. The path has the number of the process: a debugger that opens "/proc/self" gets
// its own descriptors. The dynamic linker identifies loaded libraries by name and by
// inode. Slashes and dots encode a random number, so that no later library gets the
// same name, even if the host program closes descriptors that are not its own.
func procName(f *os.File, fd uintptr) (name string, ok bool) {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return "", false
	}
	var b strings.Builder
	b.WriteString("/proc/" + self + "/fd")
	for bits := rand.Uint64() | 1<<63; bits > 1; bits >>= 1 {
		b.WriteString([]string{"/", "/."}[bits&1])
	}
	fmt.Fprintf(&b, "/%d", fd)
	return b.String(), leadsTo(b.String(), f)
}

// leadsTo reports whether name leads to the file that f has open.
func leadsTo(name string, f *os.File) bool {
	at, errA := os.Stat(name)
	is, errB := f.Stat()
	return errA == nil && errB == nil && os.SameFile(at, is)
}
