package opconfig_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// A Config lists the digests of the files that were read and the matches of patterns, by which a
// watcher detects changes.
func TestSumsAndGlobs(t *testing.T) {
	main, more := "include = [\"more/*.toml\"]\n", "[module.module_m]\n[[module.module_m.source]]\npath = \"src/*.cpp\"\n"
	files := fstest.MapFS{
		"main.toml": {Data: []byte(main)}, "more/m.toml": {Data: []byte(more)},
		"src/b.cpp": {}, "src/a.cpp": {}, "src/c.h": {},
	}
	c, err := opconfig.Load(files, "main.toml", opconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.toml": main, "more/m.toml": more} {
		if sum := sha256.Sum256([]byte(text)); c.Sums[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: %q", name, c.Sums[name])
		}
	}
	if !slices.Equal(c.Globs["src/*.cpp"], []string{"src/a.cpp", "src/b.cpp"}) ||
		!slices.Equal(c.Globs["more/*.toml"], []string{"more/m.toml"}) || len(c.Globs) != 2 {
		t.Errorf("globs: %v", c.Globs)
	}
}
