package ffi

import "fmt"

// CallError is an error that an operator raised in a call.
type CallError struct {
	Op      string
	Kind    string // name of a Python exception: TypeError, ValueError, RuntimeError
	Message string
}

func (e *CallError) Error() string { return e.Kind + ": " + e.Message }

// MissingSymbolError is the error for an operator that a module does not export.
type MissingSymbolError struct {
	Path   string // the module's file
	Op     string
	Symbol string // the missing symbol
	Err    error  // the dynamic linker's error
}

func (e *MissingSymbolError) Error() string {
	return fmt.Sprintf("module %s does not export operator %s (symbol %s): rebuild it, or check that its source has AITER_EXPORT(%s, ...)",
		e.Path, e.Op, e.Symbol, e.Op)
}

func (e *MissingSymbolError) Unwrap() error { return e.Err }

// LoadError is the error for a file that could not be loaded.
type LoadError struct {
	Path string
	What string // "support library" or "module"
	Err  error
}

func (e *LoadError) Error() string { return fmt.Sprintf("load %s %s: %v", e.What, e.Path, e.Err) }

func (e *LoadError) Unwrap() error { return e.Err }

// VersionError is the error for a support library with another version of the calling convention.
type VersionError struct{ Got, Expected int32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("calling convention version %d, expected %d: rebuild it from the sources of this program", e.Got, e.Expected)
}
