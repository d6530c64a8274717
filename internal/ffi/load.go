package ffi

import (
	"os"
	"sync"

	"github.com/aiter-go/aiter/internal/dl"
)

// callVersion is the number that aiter_ffi_version returns for the layout of cCall.
const callVersion = 2

// Support is the loaded support library. It is safe for concurrent use.
type Support struct {
	path   string
	call   uintptr // aiter_ffi_call
	decref uintptr // TVMFFIObjectDecRef
	frames sync.Pool
}

// LoadSupport loads the support library in the open file f. Modules that are loaded later use its
// symbols. It is never unloaded. The error is a *LoadError, which wraps a *dl.OpenError, a
// *dl.SymbolError or a *VersionError.
func LoadSupport(f *os.File) (*Support, error) {
	s := &Support{path: f.Name()}
	s.frames.New = func() any { return new(frame) }
	if err := s.load(f); err != nil {
		return nil, &LoadError{Path: s.path, What: "support library", Err: err}
	}
	return s, nil
}

func (s *Support) load(f *os.File) error {
	lib, err := dl.OpenFile(f, dl.Global)
	if err != nil {
		return err
	}
	check, err := lib.Sym("aiter_ffi_version")
	if err != nil {
		return err
	}
	if v := int32(dl.Call(check)); v != callVersion {
		return &VersionError{Got: v, Expected: callVersion}
	}
	if s.call, err = lib.Sym("aiter_ffi_call"); err != nil {
		return err
	}
	s.decref, err = lib.Sym("TVMFFIObjectDecRef")
	return err
}

// Module is a loaded shared library that exports operators. It is never unloaded.
type Module struct {
	lib *dl.Library
}

// Open loads the module in the open file f. Other modules do not use its symbols. The error is a
// *LoadError, which wraps a *dl.OpenError.
func (s *Support) Open(f *os.File) (*Module, error) {
	lib, err := dl.OpenFile(f, dl.Local)
	if err != nil {
		return nil, &LoadError{Path: f.Name(), What: "module", Err: err}
	}
	return &Module{lib: lib}, nil
}

// Path returns the file from which the module was loaded.
func (m *Module) Path() string { return m.lib.Name() }

// Func returns an operator by name. The error is a *MissingSymbolError.
func (m *Module) Func(op string) (Func, error) {
	symbol := "__tvm_ffi_" + op
	addr, err := m.lib.Sym(symbol)
	if err != nil {
		return Func{}, &MissingSymbolError{Path: m.Path(), Op: op, Symbol: symbol, Err: err}
	}
	return Func{addr: addr, op: op}, nil
}

// Func is an operator of a loaded module. The zero value cannot be called.
type Func struct {
	addr   uintptr
	op     string
	params *Params
}

// With returns a copy of f whose calls have the launch parameters p, nil for none.
func (f Func) With(p *Params) Func {
	f.params = p
	return f
}
