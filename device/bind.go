package device

import (
	"strings"

	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/jit/target"
)

// binding asks for a C function by name.
type binding struct {
	to   *routine
	name string
	tail []uintptr
}

// bind looks all functions up.
func bind(lib *dl.Library, list []binding) error {
	for _, b := range list {
		fn, err := lib.Sym(b.name)
		if err != nil {
			return err
		}
		*b.to = routine{name: b.name, fn: fn, tail: b.tail}
	}
	return nil
}

// openLibrary prefers one that the process has already: two versions of a
// vendor's runtime in one process would not know each other's memory.
func openLibrary(v target.Vendor, names []string) (*dl.Library, error) {
	if lib, err := dl.First(dl.Local|dl.Loaded, names...); err == nil {
		return lib, nil
	}
	lib, err := dl.First(dl.Local, names...)
	if err != nil {
		return nil, &UnavailableError{Vendor: v, Tried: names, Err: err}
	}
	return lib, nil
}

// cString reads a C string out of a buffer that it ends in.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// parseTarget takes what a vendor's library says. A device that is newer than
// the known ones is still a device.
func parseTarget(name string) (target.Target, error) {
	t, err := target.Parse(name)
	if err != nil {
		return target.Parse(name + "!")
	}
	return t, nil
}
