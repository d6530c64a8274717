package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// decoder reads the tree of one file and collects the mistakes. Its methods report
// what is wrong and go on, so that one load shows everything.
type decoder struct {
	*loader
	doc *document
}

// add reports a mistake at an offset.
func (d *decoder) add(offset int, e *Error) {
	p := d.doc.position(offset)
	e.File, e.Line, e.Col = p.File, p.Line, p.Col
	d.problems = append(d.problems, e)
}

func (d *decoder) fail(offset int, format string, args ...any) {
	d.add(offset, &Error{Msg: fmt.Sprintf(format, args...)})
}

// unknown reports a word that is not among those allowed.
func (d *decoder) unknown(offset int, what, word string, allowed []string) {
	e := &Error{Msg: fmt.Sprintf("unknown %s", what), Suggestion: nearestWord(word, allowed)}
	if e.Suggestion == "" {
		e.Msg += "; expected " + oneOf(allowed)
	}
	d.add(offset, e)
}

// oneOf lists alternatives: "a, b or c".
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// table calls the reader of every key of a table. where names the table for people.
func (d *decoder) table(n *node, where string, fields map[string]func(*node)) {
	if _, ok := n.value.(map[string]any); !ok {
		d.wrongType(n, where, "a table")
		return
	}
	for _, name := range n.order {
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
			read(item)
		}
	default:
		d.wrongType(n, where, "an array of tables, [["+where+"]]")
	}
}

// string returns a string that is not empty.
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
	return s, true
}

// strings calls read for every element of an array of strings.
func (d *decoder) strings(n *node, what string, read func(s string, n *node)) {
	if _, ok := n.value.([]any); !ok {
		d.wrongType(n, what, "an array of strings")
		return
	}
	for _, item := range n.items {
		if s, ok := d.string(item, "an element of "+what); ok {
			read(s, item)
		}
	}
}

// names is strings for an array that must not be empty when it is there.
func (d *decoder) names(n *node, what string, read func(s string, n *node)) {
	if list, ok := n.value.([]any); ok && len(list) == 0 {
		d.fail(n.at, "%s is empty, which nothing could match; leave it out to match everything", what)
		return
	}
	d.strings(n, what, read)
}

// into is a reader that stores a string.
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
