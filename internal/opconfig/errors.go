package opconfig

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// Error reports one mistake in a TOML file.
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

// UnknownModuleError reports a module that the configuration does not declare.
type UnknownModuleError struct {
	Name       string
	Nearest    []string // the most similar modules, best first
	Known      []string // all modules
	OperatorOf string   // the module with an operator called Name, or ""
}

func (e *UnknownModuleError) Error() string {
	if e.OperatorOf != "" {
		return fmt.Sprintf("unknown module %q: it is an operator of %s", e.Name, e.OperatorOf)
	}
	return fmt.Sprintf("unknown module %q%s", e.Name, suggest(e.Nearest, "modules", e.Known))
}

// UnknownOpError reports an operator that no module declares.
type UnknownOpError struct {
	Name      string
	Nearest   []string // the most similar operators, best first
	Known     []string // the operators that were searched
	Operators []string // of the module called Name, if there is one
}

func (e *UnknownOpError) Error() string {
	if len(e.Operators) > 0 {
		return fmt.Sprintf("unknown operator %q: it is a module, with the operators %s", e.Name, strings.Join(e.Operators, ", "))
	}
	return fmt.Sprintf("unknown operator %q%s", e.Name, suggest(e.Nearest, "operators", e.Known))
}

// maxListed is the largest number of names that an error lists.
const maxListed = 12

// suggest returns the end of an error about an unknown name: the nearest names, else all names if they are few.
func suggest(nearest []string, what string, known []string) string {
	switch {
	case len(nearest) > 0:
		return didYouMean(nearest)
	case len(known) > 0 && len(known) <= maxListed:
		return fmt.Sprintf("; the %s are %s", what, strings.Join(known, ", "))
	}
	return didYouMean(nil)
}

func didYouMean(words []string) string {
	if len(words) == 0 {
		return ", and no similar name exists"
	}
	return "; did you mean " + quoteList(words, " or ") + "?"
}

// UnsupportedTargetError reports a target that a module does not support.
type UnsupportedTargetError struct {
	Module    string
	Target    target.Target
	Supported []string // vendors or patterns
}

func (e *UnsupportedTargetError) Error() string {
	return fmt.Sprintf("%s does not support %s, only %s", e.Module, e.Target, strings.Join(e.Supported, ", "))
}

// UnknownAxisError reports an axis that a module does not have, or a value that an axis
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
		return what + ", only " + strings.Join(explained(e.Known), ", ")
	}
	return what
}

// explained returns values of an axis, an open range with its meaning: "5- (5 or more)".
func explained(values []string) []string {
	list := slices.Clone(values)
	for i, v := range values {
		if strings.HasSuffix(v, "-") {
			list[i] += " (" + ValueWords(v) + ")"
		}
	}
	return list
}

// NoSourcesError reports a supported target for which no source is used, or no source that
// has the operators of a part: the conditions of all these sources fail.
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
			e.Module, Words(part.String()), e.Target, e.Toolchain)
	}
	return fmt.Sprintf("%s has no source for %s with toolchain %q: no [[source]]'s \"when\" applies",
		e.Module, e.Target, e.Toolchain)
}

// DuplicateSourceError reports a file that two [[source]] tables of a module name for the
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

// VersionError reports a toolchain version that cannot be compared with a condition.
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
