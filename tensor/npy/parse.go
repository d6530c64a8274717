package npy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/tensor"
)

// FormatError reports a file that violates the format, or that has a property which this package does
// not support.
type FormatError struct {
	Field  string // "magic", "version", "header", "descr", "fortran_order", "shape"...
	Offset int    // of the byte in the header's text; 0 if unknown
	Got    string
	Want   string
	Err    error // the cause, or nil
}

func (e *FormatError) Error() string {
	msg := fmt.Sprintf("npy: %s: got %s, expected %s", e.Field, e.Got, e.Want)
	if e.Offset > 0 {
		msg = fmt.Sprintf("npy: %s at byte %d of the header: got %s, expected %s", e.Field, e.Offset, e.Got, e.Want)
	}
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// parser parses the text of a header, a Python literal: a dictionary with the keys descr,
// fortran_order and shape, each once.
type parser struct {
	text string
	pos  int
	head header
	seen map[string]bool
}

func parseHeader(text string) (header, error) {
	p := &parser{text: text, seen: map[string]bool{}}
	if err := p.dict(); err != nil {
		return header{}, err
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !p.seen[key] {
			return header{}, &FormatError{Field: "header", Got: "no key '" + key + "'", Want: "keys descr, fortran_order and shape"}
		}
	}
	return p.head, nil
}

func (p *parser) dict() error {
	if err := p.expect("{"); err != nil {
		return err
	}
	for !p.accept("}") {
		if err := p.entry(); err != nil {
			return err
		}
		if p.accept(",") {
			continue
		}
		if err := p.expect("}"); err != nil {
			return err
		}
		break
	}
	p.space()
	if p.pos != len(p.text) {
		return p.fail("header", "nothing after the dictionary")
	}
	return nil
}

// entry reads one "key: value" pair.
func (p *parser) entry() error {
	key, err := p.str("header")
	if err != nil {
		return err
	}
	if p.seen[key] {
		return p.fail("header", "the key '"+key+"' once")
	}
	p.seen[key] = true
	if err := p.expect(":"); err != nil {
		return err
	}
	switch key {
	case "descr":
		return p.descr()
	case "fortran_order":
		return p.boolean()
	case "shape":
		return p.tuple()
	}
	return p.fail("header", "only the keys descr, fortran_order and shape, not '"+key+"'")
}

func (p *parser) descr() error {
	s, err := p.str("descr")
	if err != nil {
		return err
	}
	p.head.dtype, p.head.bigEndian, err = parseDescr(s)
	return err
}

func (p *parser) boolean() error {
	switch {
	case p.accept("True"):
		p.head.fortran = true
	case !p.accept("False"):
		return p.fail("fortran_order", "True or False")
	}
	return nil
}

// tuple reads (), (3,), (3, 4) and (3, 4,). It refuses (3), which is a number in Python.
func (p *parser) tuple() error {
	if err := p.expect("("); err != nil {
		return err
	}
	comma := true
	for !p.accept(")") {
		if !comma {
			return p.fail("shape", "a comma or a closing parenthesis")
		}
		n, err := p.size()
		if err != nil {
			return err
		}
		p.head.shape = append(p.head.shape, n)
		if len(p.head.shape) > tensor.MaxRank {
			return p.fail("shape", fmt.Sprintf("at most %d dimensions", tensor.MaxRank))
		}
		comma = p.accept(",")
	}
	if len(p.head.shape) == 1 && !comma {
		return p.fail("shape", "a tuple such as (3,)")
	}
	return nil
}

// size reads a whole number. It may have the suffix L of Python 2's long integers.
func (p *parser) size() (int64, error) {
	p.space()
	end := p.pos
	for end < len(p.text) && p.text[end] >= '0' && p.text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(p.text[p.pos:end], 10, 64)
	if err != nil {
		return 0, p.fail("shape", "a size of 0 or more that fits 64 bits")
	}
	p.pos = end
	if strings.HasPrefix(p.text[p.pos:], "L") {
		p.pos++
	}
	return n, nil
}

// str reads a quoted string without escapes.
func (p *parser) str(field string) (string, error) {
	p.space()
	rest := p.text[p.pos:]
	if rest == "" || rest[0] != '\'' && rest[0] != '"' {
		return "", p.fail(field, "a quoted string")
	}
	n := strings.IndexByte(rest[1:], rest[0])
	if n < 0 || strings.ContainsAny(rest[1:1+n], "\\\n") {
		return "", p.fail(field, "a quoted string without escapes")
	}
	p.pos += n + 2
	return rest[1 : 1+n], nil
}

func (p *parser) space() {
	p.pos = len(p.text) - len(strings.TrimLeft(p.text[p.pos:], " \t\r\n"))
}

// accept reports whether word comes next, and then reads it.
func (p *parser) accept(word string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], word) {
		return false
	}
	p.pos += len(word)
	return true
}

func (p *parser) expect(word string) error {
	if !p.accept(word) {
		return p.fail("header", "'"+word+"'")
	}
	return nil
}

// fail returns a *FormatError for the text at the current position.
func (p *parser) fail(field, want string) error {
	rest := p.text[p.pos:]
	got := fmt.Sprintf("%.20q", rest)
	if rest == "" {
		got = "the end"
	}
	return &FormatError{Field: field, Offset: p.pos, Got: got, Want: want}
}
