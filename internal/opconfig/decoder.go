package opconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/aiter-go/aiter/internal/spelling"
)

// decoder reads the tree of one file. Its methods report mistakes and continue, so that one
// load shows all of them.
type decoder struct {
	*loader
	doc *document
}

// add reports a mistake at an offset, unless there are too many already.
func (d *decoder) add(offset int, e *Error) {
	if d.full() {
		return
	}
	p := d.doc.position(offset)
	e.File, e.Line, e.Col = p.File, p.Line, p.Col
	d.mistakes = append(d.mistakes, e)
}

func (d *decoder) fail(offset int, format string, args ...any) {
	d.add(offset, &Error{Msg: fmt.Sprintf(format, args...)})
}

// unknown reports a word that is not among those allowed.
func (d *decoder) unknown(offset int, what, word string, allowed []string) {
	if d.full() {
		return // the search for the nearest word takes time
	}
	e := &Error{Msg: fmt.Sprintf("unknown %s", what), Suggestion: spelling.NearestWord(word, allowed)}
	if e.Suggestion == "" {
		e.Msg += "; expected " + spelling.OneOf(allowed)
	}
	d.add(offset, e)
}

// table calls the reader of every key of a table. where names the table in messages.
func (d *decoder) table(n *node, where string, fields map[string]func(*node)) {
	if _, ok := n.value.(map[string]any); !ok {
		d.wrongType(n, where, "a table")
		return
	}
	for _, name := range n.order {
		if d.full() {
			return
		}
		if read := fields[name]; read != nil {
			read(n.fields[name])
			continue
		}
		allowed := slices.Sorted(maps.Keys(fields))
		d.unknown(n.fields[name].key, fmt.Sprintf("key %q in %s", name, where), name, allowed)
	}
}

// tables calls read for every table of an array of tables.
func (d *decoder) tables(n *node, where string, read func(*node)) {
	switch n.value.(type) {
	case []any, []map[string]any:
		for _, item := range n.items {
			if d.full() {
				return
			}
			read(item)
		}
	default:
		d.wrongType(n, where, "an array of tables, [["+where+"]]")
	}
}

// string returns a string. It reports an empty one.
func (d *decoder) string(n *node, what string) (string, bool) {
	s, ok := n.value.(string)
	if !ok {
		d.wrongType(n, what, "a string")
		return "", false
	}
	if strings.TrimSpace(s) == "" {
		d.fail(n.at, "%s is empty", what)
		return "", false
	}
	return s, d.plain(s, n.at, what)
}

// bool checks that a value is true or false.
func (d *decoder) bool(n *node, what string) {
	if _, ok := n.value.(bool); !ok {
		d.wrongType(n, what, "true or false")
	}
}

// plain reports whether a text has no control characters, and adds a mistake if it has one. No path,
// name, flag or pattern needs a control character, and a terminal may interpret it.
func (d *decoder) plain(s string, offset int, what string) bool {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return true
	}
	d.fail(offset, "%s: %q has a control character", what, s)
	return false
}

// text returns a string as one line. The string may be written on several lines.
func (d *decoder) text(n *node, what string) string {
	if s, ok := n.value.(string); ok {
		one := *n
		one.value = strings.Join(strings.Fields(s), " ")
		n = &one
	}
	s, _ := d.string(n, what)
	return s
}

// strings calls read for every element of an array of strings.
func (d *decoder) strings(n *node, what string, read func(s string, n *node)) {
	if _, ok := n.value.([]any); !ok {
		d.wrongType(n, what, "an array of strings")
		return
	}
	for _, item := range n.items {
		if d.full() {
			return
		}
		if s, ok := d.string(item, "an element of "+what); ok {
			read(s, item)
		}
	}
}

// names is like strings, but for an optional array that must not be empty.
func (d *decoder) names(n *node, what string, read func(s string, n *node)) {
	if list, ok := n.value.([]any); ok && len(list) == 0 {
		d.fail(n.at, "%s is empty and would match nothing; leave it out to match everything", what)
		return
	}
	d.strings(n, what, read)
}

// into returns a reader that stores a string.
func (d *decoder) into(to *string, what string) func(*node) {
	return func(n *node) { *to, _ = d.string(n, what) }
}

func (d *decoder) wrongType(n *node, what, expected string) {
	d.fail(n.at, "%s must be %s, got %s", what, expected, typeName(n.value))
}

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case time.Time:
		return "a date or time"
	case map[string]any:
		return "a table"
	}
	return "an array"
}
