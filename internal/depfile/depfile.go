// Package depfile parses a compiler's lists of the files that it has read.
package depfile

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// SyntaxError reports a dependency file that is not a Makefile rule as compilers write it.
type SyntaxError struct {
	Offset int    // byte at which parsing stopped
	Reason string // "expected a rule, got the end of the file"
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("dependency file: %s at byte %d", e.Reason, e.Offset)
}

// Parse returns the prerequisites of the Makefile rule that -MD writes, in order, each once.
// GCC and Clang escape blanks, '#' and '$' in names; nvcc writes a blank before the colon.
// The list includes the prerequisites of further rules (-MP). The error is a [*SyntaxError].
func Parse(data []byte) ([]string, error) {
	p := parser{data: data}
	rules := 0
	var names []string
	for p.at < len(p.data) {
		start := p.at
		words, isRule := p.rule()
		switch {
		case isRule:
			rules++
			names = append(names, words...)
		case len(words) > 0:
			return nil, &SyntaxError{start, "expected a rule, got a line without a colon"}
		}
	}
	if rules == 0 {
		return nil, &SyntaxError{len(data), "expected a rule, got the end of the file"}
	}
	return unique(names), nil
}

// parser reads the text of a dependency file.
type parser struct {
	data []byte
	at   int
}

// rule reads one logical line and returns the words after its colon, or all words if it has no
// colon.
func (p *parser) rule() (words []string, isRule bool) {
	for p.blanks(); p.at < len(p.data); p.blanks() {
		if n := p.newline(p.at); n > 0 {
			p.at += n
			break
		}
		name, target := p.name()
		if target && !isRule {
			words, isRule = nil, true
		} else if name != "" {
			words = append(words, name)
		}
	}
	return words, isRule
}

// blanks skips blanks and escaped line ends.
func (p *parser) blanks() {
	for p.at < len(p.data) {
		switch c := p.data[p.at]; {
		case c == ' ' || c == '\t' || c == '\r' && p.newline(p.at) == 0:
			p.at++
		case c == '\\' && p.newline(p.at+1) > 0:
			p.at += 1 + p.newline(p.at+1)
		default:
			return
		}
	}
}

// newline returns the length of the line end at i, 0 if there is none.
func (p *parser) newline(i int) int {
	switch {
	case i < len(p.data) && p.data[i] == '\n':
		return 1
	case i+1 < len(p.data) && p.data[i] == '\r' && p.data[i+1] == '\n':
		return 2
	}
	return 0
}

// name reads one name. target reports whether a colon ended it. It always advances.
func (p *parser) name() (name string, target bool) {
	var b strings.Builder
	for ; p.at < len(p.data); p.at++ {
		c, next := p.data[p.at], p.peek()
		switch {
		case c == '\\' && strings.IndexByte(" #\t:", next) >= 0, c == '$' && next == '$':
			b.WriteByte(next)
			p.at++
		case c == ' ' || c == '\t' || c == '\r' || c == '\n', c == '\\' && p.newline(p.at+1) > 0:
			return b.String(), false
		case c == ':' && (next == 0 || strings.IndexByte(" \t\r\n\\", next) >= 0):
			p.at++
			return b.String(), true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), false
}

// peek returns the byte after the current one, 0 at the end.
func (p *parser) peek() byte {
	if p.at+1 < len(p.data) {
		return p.data[p.at+1]
	}
	return 0
}

// ParseHeaders returns the names in the list that Clang writes to CC_PRINT_HEADERS_FILE, one on
// each line, in order, each once. Unlike the file of -MD it names the files of all passes of an
// offload compile.
func ParseHeaders(data []byte) []string {
	var names []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if dots := strings.TrimLeft(line, "."); dots != line && strings.HasPrefix(dots, " ") {
			line = dots[1:] // without the depth of nesting, as in the output of -H
		}
		if line != "" {
			names = append(names, line)
		}
	}
	return unique(names)
}

// Merge returns the names of both lists, each once.
func Merge(a, b []string) []string { return unique(slices.Concat(a, b)) }

// unique cleans the names ("./a.h" is "a.h"), and drops repetitions and /dev/null, which is
// always empty. Names with ".." stay unchanged, because ".." may follow a symlink.
func unique(names []string) []string {
	seen := make(map[string]bool, len(names))
	out := names[:0]
	for _, n := range names {
		if !strings.Contains(n, "..") {
			n = path.Clean(n)
		}
		if !seen[n] && n != os.DevNull {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// ParseTrace returns the headers in the output of GCC, Clang or nvcc with -H. Among other
// lines, each header has one: a dot for each level of nesting, a blank, the name.
func ParseTrace(output []byte) []string {
	var lines []byte
	for line := range bytes.Lines(output) {
		if bytes.HasPrefix(bytes.TrimLeft(line, "."), []byte(" ")) && line[0] == '.' {
			lines = append(lines, line...)
		}
	}
	return ParseHeaders(lines)
}
