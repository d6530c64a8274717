//go:build linux

package jit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit"
)

// TestBuildRecordIsRewritten checks that a build writes the build record when its inputs
// differ from those of the last build, and when the record is missing.
func TestBuildRecordIsRewritten(t *testing.T) {
	b := newFixture(t)
	memo := filehash.Open("")
	build := func() {
		t.Helper()
		if _, err := b.manager(func(o *jit.Options) { o.Memo = memo }).Build(t.Context(), demo(t)); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(to string) {
		b.write("src/a.cpp", strings.Replace(testFiles["src/a.cpp"], "ONLY_A;", "ONLY_A + "+to+";", 1))
	}
	before := func() string {
		t.Helper()
		edit("9")
		changes := b.explain().Units[0].Changes
		if len(changes) == 0 {
			t.Fatal("the edit did not change the library")
		}
		return changes[0].Before
	}
	build()
	first := before()
	edit("1")
	build()
	second := before()
	if second == first {
		t.Error("the second build did not replace the record of the first build")
	}
	edit("1")
	build()
	records, err := filepath.Glob(filepath.Join(b.cacheDir, "v2/record/last/*/*"))
	if err != nil || len(records) == 0 {
		t.Fatalf("no record: %v", err)
	}
	for _, r := range records {
		if err := os.Remove(r); err != nil {
			t.Fatal(err)
		}
	}
	build()
	if again := before(); again != second {
		t.Errorf("after the record was removed, a build recorded %q, want %q", again, second)
	}
}
