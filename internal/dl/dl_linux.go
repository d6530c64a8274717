package dl

import "github.com/ebitengine/purego"

// Flags of dlopen(3) in glibc and musl.
const (
	rtldNow    = purego.RTLD_NOW
	rtldGlobal = purego.RTLD_GLOBAL
	rtldNoload = 0x4
)

func dlopen(name string, flags int) (uintptr, error) { return purego.Dlopen(name, flags) }

func dlsym(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }

func dlclose(handle uintptr) error { return purego.Dlclose(handle) }

func call(fn uintptr, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
