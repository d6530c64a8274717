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

// TestTargetQuery compares the reply of two runs, of which the traced one prints nothing, with that of a traced run that prints the
// commands.
func TestTargetQuery(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := querySearch(t, "#!/bin/sh\necho \"$1\" >>'"+log+"'\nexec '%s' \"$@\"\n")
	printing, err := s.run(targetQuery(s.target))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	two, err := s.runTarget()
	if err != nil {
		t.Fatal(err)
	}
	runs := strings.Fields(string(read(t, log)))
	if slices.Sort(runs); !slices.Equal(runs, []string{"-###", "-fdriver-only"}) {
		t.Errorf("runs %q", runs)
	}
	want, got := recordOf(t, s, printing), recordOf(t, s, two)
	if want.Commands != got.Commands {
		t.Error("the commands differ")
	}
	if !slices.Equal(want.Files, got.Files) || !slices.Equal(want.Outside, got.Outside) {
		t.Errorf("files %v %v\nwant %v %v", got.Files, got.Outside, want.Files, want.Outside)
	}
	if !slices.Equal(want.Facts, got.Facts) {
		t.Errorf("facts %q\nwant %q", got.Facts, want.Facts)
	}
	if len(got.Facts) == 0 || len(got.Files) < 10 {
		t.Errorf("%d facts and %d files", len(got.Facts), len(got.Files))
	}
}

// TestTargetQueryOfOldClang queries a compiler that does not know -fdriver-only.
func TestTargetQueryOfOldClang(t *testing.T) {
	s := querySearch(t, `#!/bin/sh
case $1 in -fdriver-only) echo "clang: error: unknown argument: '$1'" >&2; exit 1; esac
exec '%s' "$@"
`)
	r, err := s.runTarget()
	if err != nil {
		t.Fatal(err)
	}
	if got := recordOf(t, s, r); len(got.Files) < 10 || strings.Contains(r.text, "unknown argument") {
		t.Errorf("%d files; %s", len(got.Files), r.text)
	}
}
