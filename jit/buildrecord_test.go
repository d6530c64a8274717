package jit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit"
)

// TestLastBuild: what the last build was made from is stored anew when it was made from
// something else, and when the record is gone, though other builds were seen before.
func TestLastBuild(t *testing.T) {
	b := newBench(t)
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
			t.Fatal("an edit changes nothing")
		}
		return changes[0].Before
	}
	build()
	first := before()
	edit("1")
	build()
	second := before()
	if second == first {
		t.Error("the second build left the first one's record")
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
		t.Errorf("after its record was lost the last build is %q, want %q", again, second)
	}
}
