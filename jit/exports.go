package jit

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// exportPrefix begins the symbol of an operator in a library. aiter/ffi.h defines the
// symbol, the registry looks it up.
const exportPrefix = "__tvm_ffi_"

// wrongExports returns an error text about operators of the configuration that a library
// lacks or has with another signature, "" if there is none. Without this check the first call
// would fail.
func (l *link) wrongExports(library string) string {
	if len(l.ops) == 0 {
		return ""
	}
	exported, signatures, err := exports(library)
	if err != nil {
		return fmt.Sprintf("it ended well but its library cannot be read: %v", err)
	}
	if missing := l.missingOps(exported); missing != "" {
		return missing
	}
	return l.wrongSignatures(signatures)
}

// missingOps returns an error text about operators that are not among those exported.
func (l *link) missingOps(exported []string) string {
	var where []string // "a, b in x.cpp", operators of the same sources together
	missing := map[string][]string{}
	for _, op := range l.ops {
		if slices.Contains(exported, op) {
			continue
		}
		in := l.sourcesOf(op)
		if missing[in] == nil {
			where = append(where, in)
		}
		missing[in] = append(missing[in], op)
	}
	if len(where) == 0 {
		return ""
	}
	for i, in := range where {
		where[i] = strings.Join(missing[in], ", ") + " in " + in
	}
	got := "none"
	if len(exported) > 0 {
		got = strings.Join(exported, ", ")
	}
	return fmt.Sprintf("the library lacks operators that the configuration of %s promises: %s; it exports: %s; write AITER_EXPORT(name, ...) of aiter/ffi.h there, which defines %sname as a visible symbol, or fix the operator's name or sources in the configuration",
		l.mod.Name, strings.Join(where, "; "), got, exportPrefix)
}

// exports returns the operators that a library defines and exports, sorted, and the signatures of
// those that have one.
func exports(library string) (ops []string, signatures map[string]signature, err error) {
	f, err := elf.Open(library)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, nil, err
	}
	signatures = map[string]signature{}
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			continue
		}
		if op, ok := strings.CutPrefix(s.Name, exportPrefix); ok {
			ops = append(ops, op)
		}
		if op, ok := strings.CutPrefix(s.Name, signaturePrefix); ok {
			if signatures[op], err = readSignature(f, s); err != nil {
				return nil, nil, fmt.Errorf("symbol %s: %w", s.Name, err)
			}
		}
	}
	slices.Sort(ops)
	return ops, signatures, nil
}

// sourcesOf returns the link's sources that hold an operator by the configuration.
func (l *link) sourcesOf(op string) string {
	var files []string
	for _, s := range l.mod.Sources {
		if slices.Contains(l.mod.Holds(s), op) {
			files = append(files, s.Files...)
		}
	}
	return strings.Join(slices.DeleteFunc(files, func(f string) bool { return !slices.Contains(l.sources, f) }), ", ")
}
