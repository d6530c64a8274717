package toolchain

import (
	"os"
	"path"
	"slices"
	"strings"
)

// answer is a compiler's output about the commands that it would run.
type answer struct {
	commands  [][]string        // program and arguments
	variables map[string]string // nvcc's settings, GCC's COMPILER_PATH and LIBRARY_PATH
}

// parseAnswer reads the output of Clang's and GCC's -### and -v and of nvcc's --dryrun. Commands are the lines that
// begin with a blank or with "#$ "; other lines of the form NAME=value are settings; the rest is ignored.
func parseAnswer(out string) answer {
	a := answer{variables: map[string]string{}}
	listing := false
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasSuffix(line, "search starts here:"):
			listing = true
		case line == "End of search list.":
			listing = false
		case !listing:
			a.line(line)
		}
	}
	return a
}

func (a *answer) line(line string) {
	rest, dry := strings.CutPrefix(line, "#$ ")
	name, value, setting := strings.Cut(rest, "=")
	switch {
	case setting && isName(name):
		a.variables[name] = value
	case dry || strings.HasPrefix(line, " "):
		words := splitWords(rest)
		if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
			words[0] = os.Expand(words[0], func(name string) string { return a.variables[name] })
			a.commands = append(a.commands, words)
		}
	}
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// list returns a variable that holds folders.
func (a answer) list(name string) []string {
	return strings.FieldsFunc(a.variables[name], func(r rune) bool { return r == ':' })
}

// splitWords splits a command line like a shell: at blanks, with single and double quotes and backslashes. A quote
// that is open at the end of the line ends there.
func splitWords(line string) []string {
	var words []string
	var word []byte
	quote, open := byte(0), false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			word, open = append(word, line[i]), true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, open = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if open {
				words = append(words, string(word))
			}
			word, open = nil, false
		default:
			word, open = append(word, c), true
		}
	}
	if open {
		words = append(words, string(word))
	}
	return words
}

// includeDirs returns the folders between "search starts here" and "End of search list" of the first compiler that
// lists them, nvcc's own first.
func includeDirs(out string) []string {
	var dirs []string
	listing := false
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case line == "End of search list.":
			return dirs
		case strings.HasSuffix(line, "search starts here:"):
			listing = true
		case listing:
			dirs = append(dirs, strings.TrimSuffix(strings.TrimSpace(line), " (framework directory)"))
		}
	}
	return dirs
}

// libraryDirs returns the folders of -L in the commands of the answers, then those of LIBRARY_PATH.
func libraryDirs(answers ...answer) []string {
	var dirs []string
	for _, a := range answers {
		for _, words := range a.commands {
			for _, w := range words {
				if dir, ok := strings.CutPrefix(w, "-L"); ok {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	for _, a := range answers {
		dirs = append(dirs, a.list("LIBRARY_PATH")...)
	}
	var out []string
	for _, dir := range dirs {
		if dir = strings.TrimRight(dir, "/"); path.IsAbs(dir) && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}
