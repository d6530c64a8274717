package device

import (
	"strings"

	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/jit/target"
)

// binding is a C function to look up by name.
type binding struct {
	to   *routine
	name string
	tail []uintptr
}

// bind looks up the functions of a list. The error is a *dl.SymbolError.
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

// bindOptional looks up the functions of a feature. A library that lacks one has none of them.
func bindOptional(lib *dl.Library, list []binding) {
	if bind(lib, list) != nil {
		for _, b := range list {
			*b.to = routine{}
		}
	}
}

// openLibrary opens a library of the list that the process has loaded, else the first that can be
// opened. Two versions of a vendor's runtime in one process do not share their memory.
func openLibrary(v target.Vendor, names []string) (*dl.Library, error) {
	if lib, err := dl.Open(dl.Local|dl.Loaded, names...); err == nil {
		return lib, nil
	}
	lib, err := dl.Open(dl.Local, names...)
	if err != nil {
		return nil, &UnavailableError{Vendor: v, Tried: names, Err: err}
	}
	return lib, nil
}

// cString returns the C string at the beginning of a buffer.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// parseTarget parses the name that a vendor's library reports. It accepts unknown architectures,
// which are those of newer devices.
func parseTarget(name string) (target.Target, error) {
	t, err := target.Parse(name)
	if err != nil {
		return target.Parse(name + "!")
	}
	return t, nil
}
