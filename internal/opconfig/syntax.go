package opconfig

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// parse returns the document's tree. If the document is not valid TOML, parse reports that and returns nil.
func (d *decoder) parse() *node {
	if offset, msg := forbidden(d.doc.src); msg != "" {
		d.fail(offset, "%s", msg)
		return nil
	}
	// The library's memory grows with the square of the depth, and it can be neither
	// limited nor interrupted. So it does not get text that exceeds the limits.
	tree := scan(d.doc.src, maxValues-d.values)
	d.values += tree.values
	if tree.over != nil {
		d.fail(tree.over.at, "%s", tree.over.msg)
		return nil
	}
	dup := tree.dup
	values, err := decode(d.doc.src)
	switch {
	case dup != nil && (err == nil || strings.Contains(err.Error(), "already been defined")):
		// The library returns only the position of the second one, and accepts some duplicates.
		d.add(dup.next, &Error{
			Msg:   fmt.Sprintf("%q is already defined at %s", dup.name, d.doc.position(dup.first)),
			cause: err,
		})
	case err != nil:
		offset, msg := explain(d.doc.src, err)
		d.add(offset, &Error{Msg: msg, cause: err})
	default:
		attach(tree.root, values)
		return tree.root
	}
	return nil
}

// forbidden finds characters that TOML allows nowhere in a file. The library returns only an
// approximate position for them.
func forbidden(src string) (offset int, msg string) {
	for i, r := range src {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(src[i:], string(utf8.RuneError)):
			return i, "the file is not UTF-8"
		case r == '\r' && !strings.HasPrefix(src[i:], "\r\n"),
			r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return i, fmt.Sprintf("control character %#U; write it as an escape in a string", r)
		}
	}
	return 0, ""
}

// decode decodes a document. It returns an error if the TOML library panics, which the library does if
// it finds its own state inconsistent.
func decode(src string) (values map[string]any, err error) {
	defer func() {
		if r := recover(); r != nil {
			values, err = nil, fmt.Errorf("not valid TOML: %v", r)
		}
	}()
	_, err = toml.Decode(src, &values)
	return values, err
}

// explain returns the offset and the message of a syntax error. The library returns the start and
// length of the text that it was reading; the mistake is at the end of that text.
func explain(src string, err error) (offset int, msg string) {
	var e toml.ParseError
	if !errors.As(err, &e) {
		return 0, err.Error()
	}
	start := min(e.Position.Start, len(src))
	seen := src[:min(start+e.Position.Len, len(src))]
	switch {
	case start == len(src):
		return start, "the file ends unexpectedly"
	case strings.Contains(e.Message, "invalid escape"), strings.Contains(e.Message, "hexadecimal digits"):
		return max(0, strings.LastIndexByte(seen, '\\')), e.Message
	case strings.Contains(e.Message, "but got"):
		_, n := utf8.DecodeLastRuneInString(seen)
		start = len(seen) - n
	}
	return start, strings.Replace(e.Message, "'\\x00'", "the end of the file", 1)
}
