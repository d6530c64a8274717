// Package upstream reads a checkout of AMD's AIter: its modules, whether they can be built without Python, PyTorch and Composable
// Kernel, and the signatures of their functions.
//
//	aiter/jit/optCompilerConfig.json   modules: sources, flags, generators, as Python expressions
//	aiter/**/*.py                      operators: stubs with the decorator @compile_ops
//	csrc/                              sources, whose includes are followed
//
// The package executes nothing of the checkout, and does not trust it: it opens only files below the checkout, and limits the sizes of
// files and the depth of expressions.
package upstream

import "fmt"

// Error reports a file of a checkout that cannot be read as expected.
type Error struct {
	File string // relative to the checkout, with slashes
	Line int    // from 1, 0 if unknown
	Msg  string
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
	}
	return e.File + ": " + e.Msg
}

// Limits on what is read.
const (
	maxFile  = 8 << 20 // bytes of a file
	maxText  = 1 << 16 // bytes of an expression
	maxDepth = 100     // nested expressions
	maxFiles = 20000   // files of a checkout that are listed, or of a module that are followed
)
