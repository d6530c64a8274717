package opconfig

import (
	"fmt"
	"path"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// Error is one mistake in a TOML file.
type Error struct {
	Source     string // of [Options]
	File       string // relative to the root
	Line, Col  int    // from 1, columns in characters; 0 if the file could not be read
	Msg        string
	Suggestion string // the word that was probably meant, or ""

	cause error
}

// Error returns "file:line:column: message; did you mean "word"?", with the source before the file.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(path.Join(e.Source, e.File))
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Col)
	}
	b.WriteString(": " + e.Msg)
	if e.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", e.Suggestion)
	}
	return b.String()
}

// Unwrap returns the cause, such as a *schema.SyntaxError, or nil.
func (e *Error) Unwrap() error { return e.cause }

// UnknownModuleError is a module name that the config does not define.
type UnknownModuleError struct {
	Name    string
	Nearest []string // the most similar modules, best first
}

func (e *UnknownModuleError) Error() string {
	return fmt.Sprintf("unknown module %q%s", e.Name, didYouMean(e.Nearest))
}

// UnknownOpError is an operator name that no module defines.
type UnknownOpError struct {
	Name    string
	Nearest []string // the most similar operators, best first
}

func (e *UnknownOpError) Error() string {
	return fmt.Sprintf("unknown operator %q%s", e.Name, didYouMean(e.Nearest))
}

func didYouMean(words []string) string {
	if len(words) == 0 {
		return ", and no similar name exists"
	}
	return "; did you mean " + quoteList(words, " or ") + "?"
}

// UnsupportedTargetError is a target that a module does not list.
type UnsupportedTargetError struct {
	Module    string
	Target    target.Target
	Supported []string // vendors or patterns
}

func (e *UnsupportedTargetError) Error() string {
	return fmt.Sprintf("%s does not support %s, only %s", e.Module, e.Target, strings.Join(e.Supported, ", "))
}

// UnknownAxisError is an axis that a module does not have, or a value that an axis
// does not have.
type UnknownAxisError struct {
	Module, Axis, Value string
	Known               []string // the axis's values or, if Value is "", the module's axes
	Nearest             []string // of them, best first
}

func (e *UnknownAxisError) Error() string {
	what := fmt.Sprintf("axis %q of %s has no value %q", e.Axis, e.Module, e.Value)
	if e.Value == "" {
		what = fmt.Sprintf("%s has no axis %q", e.Module, e.Axis)
	}
	switch {
	case len(e.Nearest) > 0:
		return what + didYouMean(e.Nearest)
	case len(e.Known) > 0:
		return what + ", only " + strings.Join(e.Known, ", ")
	}
	return what
}

// NoSourcesError is a supported target for which every source's condition fails, or
// those of all sources that hold an operator.
type NoSourcesError struct {
	Module    string
	Op        string // as in [Part]; "" for all operators
	Values    string // as in [Part]; "" for all values
	Target    target.Target
	Toolchain string // version
}

func (e *NoSourcesError) Error() string {
	if part := (Part{Op: e.Op, Values: e.Values}); !part.Whole() {
		return fmt.Sprintf("%s has no source of %s for %s with toolchain %q: no [[source]]'s \"when\" applies",
			e.Module, part, e.Target, e.Toolchain)
	}
	return fmt.Sprintf("%s has no source for %s with toolchain %q: no [[source]]'s \"when\" applies",
		e.Module, e.Target, e.Toolchain)
}

// DuplicateSourceError is a file that two [[source]] tables of a module name for the
// same target, so that it would be compiled and linked twice.
type DuplicateSourceError struct {
	Module, Source string
	Target         target.Target
	First, Second  Position
}

func (e *DuplicateSourceError) Error() string {
	return fmt.Sprintf("%s: %s is a source twice for %s, at %s and %s; make their \"when\" exclude each other",
		e.Module, e.Source, e.Target, e.First, e.Second)
}

// VersionError is a toolchain version that cannot be compared with a condition.
type VersionError struct {
	Version   string // of the toolchain
	Condition string // such as ">=6.0"
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("toolchain version %q cannot be compared with %q; expected digits and dots, as in 7.0.2",
		e.Version, e.Condition)
}

func quoteList(words []string, sep string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(quoted, sep)
}
