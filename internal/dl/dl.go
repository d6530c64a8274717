// Package dl opens shared libraries and calls C functions in them without cgo. It is the only package
// that imports purego. On systems other than Linux opening fails with [*sys.UnsupportedError].
package dl

import (
	"runtime"
	"strings"
	"unsafe"

	"github.com/aiter-go/aiter/internal/sys"
)

// Flags define the visibility of a library's symbols. All symbols are resolved when a library is
// opened, so that opening a broken library fails.
type Flags int

const (
	// Local hides a library's symbols from other libraries.
	Local Flags = rtldNow
	// Global makes a library's symbols visible to libraries opened after it.
	Global Flags = rtldNow | rtldGlobal
	// Loaded is combined with Local or Global. It opens a library only if the process has loaded it
	// (RTLD_NOLOAD of glibc and musl).
	Loaded Flags = rtldNoload
)

// Library is an open shared library. It is safe for concurrent use.
type Library struct {
	handle uintptr
	name   string
}

// Open loads the first library of names that can be opened. The dynamic linker searches its folders for
// a name without a slash. The error is an *OpenError with the reason of each failure.
func Open(flags Flags, names ...string) (*Library, error) {
	if err := errUnsupported(); err != nil {
		return nil, err
	}
	failed := &OpenError{}
	for _, name := range names {
		handle, err := open(name, flags)
		if err == nil {
			return &Library{handle: handle, name: name}, nil
		}
		failed.Attempts = append(failed.Attempts, Attempt{Name: name, Reason: err.Error()})
	}
	return nil, failed
}

// open calls dlopen and dlerror on one thread, because dlerror returns the error of the calling
// thread.
func open(name string, flags Flags) (uintptr, error) {
	if err := checkName(name); err != nil {
		return 0, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return dlopen(name, int(flags))
}

// errUnsupported returns the error of systems without support for loading libraries.
func errUnsupported() error { return sys.Unsupported("loading a library") }

func checkName(name string) error {
	if name == "" {
		return errEmptyName
	}
	if strings.IndexByte(name, 0) >= 0 {
		return errNUL
	}
	return nil
}

// Name returns the name or path by which the library was opened.
func (l *Library) Name() string { return l.name }

// Sym returns the address of a symbol, never 0. The error is a *SymbolError.
func (l *Library) Sym(name string) (uintptr, error) {
	if err := checkName(name); err != nil {
		return 0, &SymbolError{Library: l.name, Symbol: name, Reason: err.Error()}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	addr, err := dlsym(l.handle, name)
	if err != nil {
		return 0, &SymbolError{Library: l.name, Symbol: name, Reason: err.Error()}
	}
	return addr, nil
}

// Close closes the library. The addresses of its symbols become invalid, so close only a library
// whose functions were never called. The error is a *CloseError.
func (l *Library) Close() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := dlclose(l.handle); err != nil {
		return &CloseError{Library: l.name, Reason: err.Error()}
	}
	return nil
}

// Call calls the C function at fn, which must not be 0, with at most 32 integer or
// pointer arguments, and returns its integer result; convert a result of type int by
// int32(r). The call runs on one OS thread. Convert a Go pointer in the argument list
// itself, uintptr(unsafe.Pointer(p)): its memory is then on the heap, and alive until
// Call returns.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr {
	return call(fn, args)
}

// GoString copies the NUL-terminated C string at addr; "" for address 0.
func GoString(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	p := (*byte)(Pointer(addr))
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return strings.Clone(unsafe.String(p, n))
}

// Pointer converts an address that C returned to a pointer. The memory must not be Go's: an
// address keeps no memory alive.
func Pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
