package schema

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	eof    tokenKind = iota
	word             // identifier
	number           // with its sign; validated where it is used
	str              // with its quotes
	punct            // one of ( ) [ ] , = ? ! * . -> ::
	bad              // any other text
)

type token struct {
	kind tokenKind
	text string
	at   int // byte offset in the input
}

// String describes the token for an error message.
func (t token) String() string {
	if t.kind == eof {
		return "the end"
	}
	return strconv.Quote(t.text)
}

// next advances to the next token.
func (p *parser) next() {
	at := p.tok.at + len(p.tok.text)
	at += len(p.in[at:]) - len(strings.TrimLeft(p.in[at:], " \t\r\n"))
	kind, n := scan(p.in[at:])
	p.tok = token{kind, p.in[at : at+n], at}
}

// scan returns the kind and the length of the token at the start of s.
func scan(s string) (tokenKind, int) {
	switch {
	case s == "":
		return eof, 0
	case isLetter(s[0]):
		return word, span(s, func(c byte) bool { return isLetter(c) || isDigit(c) })
	case strings.HasPrefix(s, "->"), strings.HasPrefix(s, "::"):
		return punct, 2
	case isDigit(s[0]), len(s) > 1 && (s[0] == '-' || s[0] == '.') && (isDigit(s[1]) || s[1] == '.'):
		return number, numberLen(s)
	case s[0] == '"' || s[0] == '\'':
		return stringLen(s)
	case strings.IndexByte("()[],=?!*.", s[0]) >= 0:
		return punct, 1
	}
	_, n := utf8.DecodeRuneInString(s)
	return bad, n
}

// numberLen returns the number of characters at the start of s that a number may have, the
// sign of an exponent included. strconv validates the number later.
func numberLen(s string) int {
	n := 1
	for n < len(s) {
		sign := (s[n] == '-' || s[n] == '+') && (s[n-1] == 'e' || s[n-1] == 'E')
		if !sign && !isLetter(s[n]) && !isDigit(s[n]) && s[n] != '.' {
			break
		}
		n++
	}
	return n
}

// stringLen returns the length of a quoted string. A string that does not end on its line
// or contains a control character is bad.
func stringLen(s string) (tokenKind, int) {
	escaped := false
	for i := 1; i < len(s) && s[i] >= ' ' && s[i] != 0x7f; i++ {
		switch {
		case escaped:
			escaped = false
		case s[i] == '\\':
			escaped = true
		case s[i] == s[0]:
			return str, i + 1
		}
	}
	return bad, len(s)
}

// unquote removes the quotes, and the backslash of each escaped character.
func unquote(s string) string {
	var b strings.Builder
	s = s[1 : len(s)-1]
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func span(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// word consumes an identifier.
func (p *parser) word(expected string) string {
	text := p.tok.text
	if p.tok.kind != word {
		p.fail(p.tok, expected)
		return ""
	}
	p.next()
	return text
}

// accept reports whether the token is the given punctuation, and then consumes it.
func (p *parser) accept(text string) bool {
	if p.tok.kind != punct || p.tok.text != text {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail(p.tok, strconv.Quote(text))
	}
}

// fail records an error, unless there is one already, and moves to the end of the input.
func (p *parser) fail(at token, expected string) { p.suggest(at, expected, "") }

// suggest is like fail and adds the word that was probably meant.
func (p *parser) suggest(at token, expected, word string) {
	if p.err == nil {
		p.err = &SyntaxError{Input: p.in, Offset: at.at, Expected: expected, Got: at.String(), Suggestion: word}
	}
	p.tok = token{kind: eof, at: len(p.in)}
}
