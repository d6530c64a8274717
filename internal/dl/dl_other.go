//go:build !linux

package dl

import "os"

const (
	rtldNow    = 0x2
	rtldGlobal = 0x100
	rtldNoload = 0x4
)

func dlopen(string, int) (uintptr, error) { return 0, errUnsupported() }

func dlsym(uintptr, string) (uintptr, error) { return 0, errUnsupported() }

func dlclose(uintptr) error { return errUnsupported() }

// call returns -1. No call reaches it, because no library can be opened.
func call(uintptr, []uintptr) uintptr { return ^uintptr(0) }

// OpenFile fails.
func OpenFile(*os.File, Flags) (*Library, error) { return nil, errUnsupported() }
