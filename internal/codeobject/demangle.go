package codeobject

import "github.com/ianlancetaylor/demangle"

// demangleName makes a symbol readable: without parameters, which repeat what the name says.
func demangleName(symbol string) string {
	return demangle.Filter(symbol, demangle.NoParams, demangle.NoEnclosingParams)
}
