//go:build linux

package toolchain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/testenv"
)

// querySearch returns a search for a target of a compiler that is a script around the real hipcc.
func querySearch(t *testing.T, script string) *search {
	t.Helper()
	compiler := filepath.Join(t.TempDir(), "hipcc")
	if err := os.WriteFile(compiler, []byte(fmt.Sprintf(script, testenv.Tool(t, "hipcc"))), 0o755); err != nil {
		t.Fatal(err)
	}
	f := &Finder{Env: environment("HIPCC", compiler), Memo: filehash.Open("")}
	tc := reals()[1].find(t)
	s := &search{ctx: context.Background(), target: parse(t, "gfx90a"), session: f.Session(), memo: f.Memo, timeout: DefaultTimeout}
	s.tc = &Toolchain{Vendor: tc.Vendor, Compiler: compiler, env: tc.env, Root: tc.Root, IncludeDirs: tc.IncludeDirs}
	var remove func()
	s.folder, remove = s.tempFolder()
	t.Cleanup(remove)
	return s
}

// recordOf returns the files and facts of a reply about the target.
func recordOf(t *testing.T, s *search, r reply) *record {
	t.Helper()
	if r.trace == nil || r.why != "" {
		t.Fatalf("no trace: %s", r.why)
	}
	out := &record{}
	if err := s.collect(out, false, []answer{parseAnswer(r.text)}, []reply{r}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTargetQuery checks that one run of the compiler gives the commands and the trace.
func TestTargetQuery(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := querySearch(t, "#!/bin/sh\necho \"$1\" >>'"+log+"'\nexec '%s' \"$@\"\n")
	r, err := s.runTarget()
	if err != nil {
		t.Fatal(err)
	}
	if runs := strings.Fields(string(read(t, log))); !slices.Equal(runs, []string{"-###"}) {
		t.Errorf("runs %q", runs)
	}
	got := recordOf(t, s, r)
	if len(got.Facts) == 0 || len(got.Files) < 10 || got.Commands == "" {
		t.Errorf("%d facts, %d files, commands %q", len(got.Facts), len(got.Files), got.Commands)
	}
}
