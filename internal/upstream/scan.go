package upstream

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	endToken    tokenKind = iota
	nameToken             // identifiers and keywords
	numberToken           // not checked
	stringToken           // with prefix and quotes
	signToken             // operators and brackets
	lineToken             // the end of a logical line of Python
	badToken              // text is the error
)

// token is a token of Python or, from [newCScanner], of C++.
type token struct {
	kind   tokenKind
	text   string
	offset int
	line   int
}

// scanner splits Python or C++ into tokens. It drops comments, and in C++ the directives of the preprocessor.
type scanner struct {
	text  string
	at    int
	line  int
	depth int  // open brackets; within them a line of Python does not end
	c     bool // C++
	fresh bool // nothing but white space on this line yet
}

func newScanner(text string) *scanner  { return &scanner{text: text, line: 1, fresh: true} }
func newCScanner(text string) *scanner { return &scanner{text: text, line: 1, c: true, fresh: true} }

// signs are the operators of several bytes that are one token. The scanner splits other operators into their characters.
var signs = []string{"...", "->", "**", "==", "!=", "<=", ">=", "::", ":="}

// next returns the next token. At the end of the text each call returns an endToken.
func (s *scanner) next() token {
	for s.at < len(s.text) {
		rest := s.text[s.at:]
		switch c := rest[0]; {
		case c == '\n':
			start := s.at
			line := s.line
			s.skip(1)
			ends := !s.fresh && s.depth == 0 && !s.c
			s.fresh = true
			if ends {
				return token{lineToken, "\n", start, line}
			}
		case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v':
			s.skip(1)
		case strings.HasPrefix(rest, "\\\n"):
			s.skip(2)
		case strings.HasPrefix(rest, "\\\r\n"):
			s.skip(3)
		case !s.c && c == '#', s.c && strings.HasPrefix(rest, "//"):
			s.skip(lineEnd(rest))
		case s.c && strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				return s.bad("a comment does not end")
			}
			s.skip(n + 4)
		case s.c && c == '#' && s.fresh:
			s.skip(logicalEnd(rest))
		default:
			s.fresh = false
			return s.token(rest)
		}
	}
	return token{endToken, "", len(s.text), s.line}
}

func (s *scanner) skip(n int) {
	n = min(n, len(s.text)-s.at)
	s.line += strings.Count(s.text[s.at:s.at+n], "\n")
	s.at += n
}

// bad returns a badToken and ends the text.
func (s *scanner) bad(why string) token {
	t := token{badToken, why, s.at, s.line}
	s.at = len(s.text)
	return t
}

// take returns the next n bytes as a token.
func (s *scanner) take(kind tokenKind, n int) token {
	t := token{kind, s.text[s.at : s.at+n], s.at, s.line}
	s.skip(n)
	return t
}

func (s *scanner) token(rest string) token {
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case r == '_' || unicode.IsLetter(r):
		n := wordLen(rest)
		if quoted := rest[n:]; n <= 3 && quoted != "" && (quoted[0] == '"' || quoted[0] == '\'') && s.isPrefix(rest[:n]) {
			return s.quoted(n)
		}
		return s.take(nameToken, n)
	case r >= '0' && r <= '9', r == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		return s.take(numberToken, numberLen(rest))
	case r == '"' || r == '\'':
		return s.quoted(0)
	case r < ' ' || r == 0x7f || r == utf8.RuneError && size <= 1:
		return s.bad("a byte that is not text")
	}
	for _, sign := range signs {
		if strings.HasPrefix(rest, sign) {
			return s.take(signToken, len(sign))
		}
	}
	switch {
	case strings.IndexByte("([{", rest[0]) >= 0:
		s.depth++
	case strings.IndexByte(")]}", rest[0]) >= 0:
		s.depth = max(0, s.depth-1)
	}
	return s.take(signToken, size)
}

// isPrefix reports whether a word before a quote is a part of the literal.
func (s *scanner) isPrefix(word string) bool {
	if s.c {
		return word == "L" || word == "u8" || word == "u" || word == "U" || word == "R"
	}
	return strings.Trim(strings.ToLower(word), "rbfu") == ""
}

// quoted returns the string literal that begins with a prefix of n bytes.
func (s *scanner) quoted(n int) token {
	rest := s.text[s.at:]
	if s.c && n > 0 && rest[n-1] == 'R' {
		return s.rawString(n)
	}
	quote := rest[n : n+1]
	if triple := strings.Repeat(quote, 3); !s.c && strings.HasPrefix(rest[n:], triple) {
		quote = triple
	}
	for i := n + len(quote); i < len(rest); i++ {
		switch {
		case rest[i] == '\\':
			i++
		case strings.HasPrefix(rest[i:], quote):
			return s.take(stringToken, i+len(quote))
		case rest[i] == '\n' && len(quote) == 1:
			return s.bad("a string does not end on its line")
		}
	}
	return s.bad("a string does not end")
}

// rawString returns a literal R"x(...)x" of C++ that begins with a prefix of n bytes.
func (s *scanner) rawString(n int) token {
	rest := s.text[s.at:]
	open := strings.IndexByte(rest[n:], '(')
	if open < 0 || open > 17 {
		return s.bad("a raw string without its parenthesis")
	}
	closing := ")" + rest[n+1:n+open] + `"`
	end := strings.Index(rest[n+open:], closing)
	if end < 0 {
		return s.bad("a raw string does not end")
	}
	return s.take(stringToken, n+open+end+len(closing))
}

// wordLen returns the length of the identifier with which s begins.
func wordLen(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return i
		}
	}
	return len(s)
}

// numberLen returns the length of the number with which s begins, in bytes.
func numberLen(s string) int {
	n := 1
	for n < len(s) {
		c := s[n]
		sign := (c == '-' || c == '+') && (s[n-1] == 'e' || s[n-1] == 'E') && !strings.HasPrefix(s, "0x")
		if !sign && c != '.' && c != '_' && c != '\'' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			break
		}
		n++
	}
	return n
}

// lineEnd returns the index of the first line break, else the length.
func lineEnd(s string) int {
	if n := strings.IndexByte(s, '\n'); n >= 0 {
		return n
	}
	return len(s)
}

// logicalEnd returns the end of the first logical line: a backslash at its end continues a line.
func logicalEnd(s string) int {
	for n := 0; ; {
		end := n + lineEnd(s[n:])
		if end == len(s) || !strings.HasSuffix(strings.TrimSuffix(s[:end], "\r"), `\`) {
			return end
		}
		n = end + 1
	}
}

// scanAll returns all tokens, the last of them an endToken or a badToken.
func scanAll(s *scanner) []token {
	var list []token
	for {
		t := s.next()
		list = append(list, t)
		if t.kind == endToken || t.kind == badToken {
			return list
		}
	}
}
