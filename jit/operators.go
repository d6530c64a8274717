package jit

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// exportPrefix begins the symbol of an operator in a library. aiter/ffi.h defines the
// symbol; the registry looks it up.
const exportPrefix = "__tvm_ffi_"

// wrongOperators returns an error text about operators of the configuration that a library
// lacks or has with another signature, "" if there is none. Without this check the first call
// would fail.
func (l *link) wrongOperators(library string) string {
	if len(l.ops) == 0 {
		return ""
	}
	exported, signatures, err := exportedOperators(library)
	if err != nil {
		return fmt.Sprintf("it exited without an error, but its library cannot be read: %v", err)
	}
	if missing := l.missingOperators(exported); missing != "" {
		return missing
	}
	return l.wrongSignatures(signatures)
}

// missingOperators returns an error text that names the operators that are not exported, "" if all
// are.
func (l *link) missingOperators(exported []string) string {
	missing := l.missingBySource(exported)
	if missing == nil {
		return ""
	}
	got := "none"
	if len(exported) > 0 {
		got = strings.Join(exported, ", ")
	}
	return fmt.Sprintf("the library lacks operators that the configuration of %s declares: %s; it exports: %s; "+
		"write AITER_EXPORT(name, ...) of aiter/ffi.h there, which defines %sname as a visible symbol, "+
		"or fix the operator's name or sources in the configuration",
		l.mod.Name, strings.Join(missing, "; "), got, exportPrefix)
}

// missingBySource returns the operators that are not exported, with their sources: "a, b in
// x.cpp". Operators of the same sources are in one entry.
func (l *link) missingBySource(exported []string) []string {
	var sources []string
	ops := map[string][]string{}
	for _, op := range l.ops {
		if slices.Contains(exported, op) {
			continue
		}
		in := l.sourcesOf(op)
		if ops[in] == nil {
			sources = append(sources, in)
		}
		ops[in] = append(ops[in], op)
	}
	for i, in := range sources {
		sources[i] = strings.Join(ops[in], ", ") + " in " + in
	}
	return sources
}

// exportedOperators returns the operators that a library defines and exports, sorted, and the
// signatures of those that have one.
func exportedOperators(library string) (ops []string, signatures map[string]signature, err error) {
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

// sourcesOf returns the sources of the link that define an operator according to the
// configuration, separated by commas.
func (l *link) sourcesOf(op string) string {
	var files []string
	for _, s := range l.mod.Sources {
		if slices.Contains(l.mod.OpsIn(s), op) {
			files = append(files, s.Files...)
		}
	}
	return strings.Join(slices.DeleteFunc(files, func(f string) bool { return !slices.Contains(l.sources, f) }), ", ")
}
