package opconfig

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// parse returns the document's tree, nil after reporting that it is not TOML.
func (d *decoder) parse() *node {
	if offset, msg := forbidden(d.doc.src); msg != "" {
		d.fail(offset, "%s", msg)
		return nil
	}
	// The library's memory grows with the square of the depth, and it can be neither
	// limited nor interrupted: text beyond the limits does not reach it.
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
		// The library says only where the second one is, and lets some pass.
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

// forbidden finds what TOML allows nowhere in a file, for which the library's place
// is only near.
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

// decode guards against input on which the TOML library panics, as it does where
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

// explain returns the place and the words of a syntax error. The library gives the
// start and length of the text that it was in the middle of; what it complains of is
// at the end of that.
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
