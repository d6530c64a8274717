package codeobject

import "github.com/ianlancetaylor/demangle"

// demangleName makes a symbol readable. It omits the parameters, which repeat the template arguments in the name.
func demangleName(symbol string) string {
	return demangle.Filter(symbol, demangle.NoParams, demangle.NoEnclosingParams)
}
