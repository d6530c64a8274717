package aiter_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExamples checks that each package that users can import has an example with an output, which `go test` runs.
func TestExamples(t *testing.T) {
	for pkg := range layers {
		if strings.HasPrefix(pkg, "internal/") || strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, "examples/") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(".", pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var parsed []*ast.File
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		if !slices.ContainsFunc(doc.Examples(parsed...), func(e *doc.Example) bool { return e.Output != "" }) {
			t.Errorf("package %q has no example with an output; add one to example_test.go", pkg)
		}
	}
}
