package toolchain

import (
	"path/filepath"
	"regexp"
	"strings"
)

// The digest of the toolchain covers the commands that the driver would run, because they contain the options that a
// wrapper adds, and properties of the processor that the driver found. Fixed names replace the words that differ between
// runs, and the folder of the installation.

// temporaries matches the names that drivers give temporary files (GCC, Clang, nvcc) and units (Clang).
var temporaries = regexp.MustCompile(`-cuid=[0-9a-f]+|/cc[A-Za-z0-9]{6}\b|-[0-9a-f]{6}\b|\btmpxft_[0-9a-f]+_[0-9a-f]+`)

// settings are the variables in answers that contain options.
var settings = []string{"COLLECT_GCC_OPTIONS", "COMPILER_PATH", "LIBRARY_PATH"}

// commands returns a digest of the commands in the answers and of the folders of headers.
func (s *search) commands(include []string, answers []answer) string {
	prefixes := s.prefixes()
	lines := []string{normalize(strings.Join(include, ":"), prefixes)}
	for _, a := range answers {
		for _, words := range a.commands {
			lines = append(lines, normalize(strings.Join(words, "\x00"), prefixes))
		}
		for _, name := range settings {
			lines = append(lines, name+"="+normalize(a.variables[name], prefixes))
		}
	}
	return sum(strings.Join(lines, "\n"))
}

// prefixes returns the folders in which the compiler is installed.
func (s *search) prefixes() []string {
	paths := []string{s.tc.Compiler}
	if real, err := filepath.EvalSymlinks(s.tc.Compiler); err == nil && real != s.tc.Compiler {
		paths = append(paths, real)
	}
	var out []string
	for _, p := range paths {
		dir := filepath.Dir(p)
		if filepath.Base(dir) == "bin" {
			dir = filepath.Dir(dir)
		}
		if dir != "/" {
			out = append(out, dir+"/")
		}
	}
	return out
}

// normalize replaces the names of temporary files and the folders of the installation.
func normalize(text string, prefixes []string) string {
	text = temporaries.ReplaceAllString(text, "$$NAME")
	for _, prefix := range prefixes {
		text = strings.ReplaceAll(text, prefix, "$HERE/")
	}
	return text
}
