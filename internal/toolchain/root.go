package toolchain

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxScript bounds the size of a file that may be a wrapper script, in bytes.
const maxScript = 64 << 10

// rootMark begins the line in which a wrapper script names its root, absolute or relative to the script.
const rootMark = "# aiter-root:"

// findRoot finds the root folder of the files that the compiler names. A folder that the wrapper mentions precedes this
// machine's own root, which often has files of the same names.
func (s *search) findRoot(answers []answer) (string, error) {
	named := absolutePrograms(answers)
	if s.override != "" {
		return s.tryRoots(named, []string{filepath.Clean(s.override)})
	}
	return s.tryRoots(named, append(scriptRoots(s.tc.Compiler), "/"))
}

// tryRoots returns the first folder that has the files, "" for "/". A container shows some of this machine's files too,
// outside of the system's folders. Some of the compiler's files, but not all, may be among them.
func (s *search) tryRoots(named, roots []string) (string, error) {
	missing := ""
	for _, root := range roots {
		has := func(p string) bool { return isFile(below(root, p)) }
		shown := func(p string) bool { return !under(p, containerFolders) && isFile(p) }
		i := slices.IndexFunc(named, func(p string) bool { return !has(p) && !shown(p) })
		if i < 0 && (len(named) == 0 || slices.ContainsFunc(named, has)) {
			return strings.TrimSuffix(root, "/"), nil
		}
		if i >= 0 {
			missing = named[i]
		}
	}
	return "", &RootError{Compiler: s.tc.Compiler, Missing: missing, Tried: roots}
}

// absolutePrograms returns the programs that the commands name by path.
func absolutePrograms(answers []answer) []string {
	var out []string
	for _, a := range answers {
		for _, c := range a.commands {
			if filepath.IsAbs(c[0]) && !slices.Contains(out, c[0]) {
				out = append(out, c[0])
			}
		}
		if here := a.variables["_HERE_"]; filepath.IsAbs(here) { // nvcc's own folder
			out = append(out, filepath.Join(here, "nvcc"))
		}
	}
	return out
}

// scriptRoots returns the folders that may be the root of a wrapper script: the one it declares, then those it mentions.
func scriptRoots(compiler string) []string {
	real, err := filepath.EvalSymlinks(compiler)
	if err != nil {
		return nil
	}
	text := readScript(real)
	var roots []string
	for line := range strings.Lines(text) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), rootMark); ok {
			dir = strings.TrimSpace(dir)
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(filepath.Dir(real), dir)
			}
			roots = append(roots, filepath.Clean(dir))
		}
	}
	return append(roots, mentionedRoots(text)...)
}

// mentionedRoots returns the absolute folders in a script. For a folder that every root has, such as /usr, it returns the
// folder above.
func mentionedRoots(text string) []string {
	var roots []string
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`=:;,|&()<>{}", r) }) {
		if !strings.HasPrefix(word, "/") || strings.ContainsAny(word, "$*?[") {
			continue
		}
		dir := filepath.Clean(word)
		for _, own := range []string{"/usr", "/etc", "/bin", "/lib", "/opt"} {
			if above, ok := strings.CutSuffix(dir, own); ok {
				dir = above
			}
		}
		if info, err := os.Stat(dir); dir != "" && dir != "/" && err == nil && info.IsDir() && !slices.Contains(roots, dir) {
			roots = append(roots, dir)
		}
	}
	return roots
}

// readScript returns the text of a "#!" file, "" for anything else.
func readScript(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxScript))
	if err != nil || !bytes.HasPrefix(text, []byte("#!")) {
		return ""
	}
	return string(text)
}
