package upstream_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/internal/upstream"
)

var write = flag.Bool("write", false, "write docs/aiter.md's table, instead of comparing it")

// declared returns the declarations of this project for a checkout.
func declared(t *testing.T, dir string) upstream.Declared {
	t.Helper()
	files := os.DirFS(filepath.Join(testenv.Root(t), "csrc/upstream"))
	cfg, err := opconfig.Load(files, settings.ModuleConfig, opconfig.Options{Env: func(string) (string, bool) { return dir, true }})
	if err != nil {
		t.Fatal(err)
	}
	return upstream.Declared{Config: cfg, Files: files}
}

// realCheckout opens the checkout that AITER_CHECKOUT names, of the commit that docs/aiter.md is about.
func realCheckout(t *testing.T) *upstream.Checkout {
	t.Helper()
	dir := os.Getenv(settings.CheckoutVariable)
	if dir == "" {
		t.Skip("no AITER_CHECKOUT; make test-aiter sets it")
	}
	c, err := upstream.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if c.Commit != "" && !strings.HasPrefix(c.Commit, "e4048607") {
		t.Skipf("the declarations are for commit e4048607, the checkout has %s", c.Commit)
	}
	return c
}

// TestDocsTable compares the table of docs/aiter.md with the modules of the checkout.
func TestDocsTable(t *testing.T) {
	c := realCheckout(t)
	if _, err := os.Stat(filepath.Join(c.Dir, "gradlib")); err != nil {
		t.Skipf("the checkout is a part of AIter: %v", err)
	}
	var b strings.Builder
	b.WriteString("| module | operators | state |\n|---|---|---|\n")
	for _, s := range c.Status(declared(t, c.Dir)) {
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", s.Name, len(s.Operators), s.Words())
	}
	docsTable(t, "| module | operators | state |", b.String(), "AITER_CHECKOUT="+c.Dir+" ", "TestDocsTable")
}

// docsTable compares the table of docs/aiter.md that begins with a line, or writes it. env are the variables that the test needs.
func docsTable(t *testing.T, first, table, env, test string) {
	t.Helper()
	name := filepath.Join(testenv.Root(t), "docs/aiter.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	start := bytes.Index(page, []byte(first))
	if start < 0 {
		t.Fatalf("docs/aiter.md has no table %s", first)
	}
	length := bytes.Index(append(page[start:], "\n\n"...), []byte("\n\n")) + 1
	if *write {
		page = append(append(page[:start:start], table...), page[min(start+length, len(page)):]...)
		if err := os.WriteFile(name, page, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := strings.Split(string(page[start:min(start+length, len(page))]), "\n"), strings.Split(table, "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("docs/aiter.md, line %d of the table: got %q, want %q; write it with\n  %sgo test ./internal/upstream -run %s -args -write",
				i+1, at(got, i), at(want, i), env, test)
		}
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// TestRealInterface compares the committed interface with what import writes for the checkout.
func TestRealInterface(t *testing.T) {
	c := realCheckout(t)
	cc, want := compiler(t), committed(t)
	list, compared, err := c.Check(t.Context(), declared(t, c.Dir), cc, want, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		t.Error(d)
	}
	if len(compared) < 4 {
		t.Errorf("compared %q, want 4 modules or more", compared)
	}
	if len(list) > 0 {
		t.Errorf("write the interface with aiterctl aiter import %s --output csrc/upstream/%s, and change the declarations",
			c.Dir, upstream.InterfaceFile)
	}
}
