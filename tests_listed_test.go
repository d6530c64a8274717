package aiter_test

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var testFunction = regexp.MustCompile(`(?ms)^func (\w+)\(t \*testing\.T\) \{\n(.*?)^\}`)

// TestSkippedByRaceDetector checks that other targets of the Makefile run the tests that `make test-race` skips.
func TestSkippedByRaceDetector(t *testing.T) {
	makefile := readText(t, "Makefile")
	_, list, _ := strings.Cut(makefile, "KERNEL_TESTS := ")
	list, _, _ = strings.Cut(list, "\n\n")
	kernels := strings.Fields(list)
	skipped := 0
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			if err == nil && entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			return err
		}
		text := readText(t, name)
		for _, m := range testFunction.FindAllStringSubmatch(text, -1) {
			whole := strings.Contains(m[2], "\ttestenv.SkipRace(t)\n")
			if !whole && !strings.Contains(m[2], "Values(testenv."+"Sample(") {
				continue
			}
			skipped++
			if whole && !strings.Contains(m[2], "\ttestenv.Long(t)\n") {
				continue // `make test` runs it
			}
			sanitized := m[1] == "TestCPUOnAarch64" && strings.Contains(makefile, "TestCPU(Sanitized|Patterned|OnAarch64)")
			if !slices.Contains(kernels, m[1]) && !sanitized {
				t.Errorf("%s: %s is skipped or sampled under the race detector, but KERNEL_TESTS in the Makefile lacks it", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if skipped < 5 {
		t.Errorf("found %d tests that the race detector skips, want 5 or more", skipped)
	}
}
