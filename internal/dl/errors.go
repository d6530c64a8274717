package dl

import (
	"errors"
	"fmt"
	"strings"
)

var (
	errEmptyName = errors.New("the name is empty")
	errNUL       = errors.New("the name contains a NUL byte")
	errExchanged = errors.New("the path leads to another file than the one that was checked")
)

// Attempt is one library that could not be opened.
type Attempt struct {
	Name   string // the name tried
	Reason string // the dynamic loader's text
}

// OpenError is the error if no library could be opened.
type OpenError struct {
	Attempts []Attempt // in the order tried
}

func (e *OpenError) Error() string {
	var missing, parts []string
	for _, a := range e.Attempts {
		if a.Missing() {
			missing = append(missing, a.Name)
		} else {
			parts = append(parts, a.String())
		}
	}
	if len(missing) > 0 {
		parts = append(parts, "not found: "+strings.Join(missing, ", "))
	}
	if len(parts) == 0 {
		return "open shared library: no name given"
	}
	return "open shared library: " + strings.Join(parts, "; ")
}

// Missing reports whether the library does not exist, as opposed to one that is broken or lacks a
// dependency.
func (a Attempt) Missing() bool {
	return a.Name != "" && strings.Contains(a.Reason, a.Name) && strings.Contains(a.Reason, "No such file")
}

// String returns the name and the reason. The reason often begins with the name.
func (a Attempt) String() string {
	if a.Name != "" && strings.HasPrefix(a.Reason, a.Name) {
		return a.Reason
	}
	return fmt.Sprintf("%q: %s", a.Name, a.Reason)
}

// SymbolError is the error for a symbol that a library lacks.
type SymbolError struct {
	Library string // the name by which it was opened
	Symbol  string
	Reason  string // the dynamic loader's text
}

func (e *SymbolError) Error() string {
	return fmt.Sprintf("%s has no symbol %q: %s", e.Library, e.Symbol, e.Reason)
}

// CloseError is the error if the dynamic loader refuses to close a library.
type CloseError struct {
	Library string
	Reason  string
}

func (e *CloseError) Error() string { return fmt.Sprintf("close %s: %s", e.Library, e.Reason) }
