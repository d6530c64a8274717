package opconfig

import (
	"slices"
	"unicode/utf8"
)

// document is the text of one file.
type document struct {
	source string // of [Options]
	file   string
	src    string
	lines  []int // offsets at which lines start, computed on first use
}

// position converts a byte offset to a Position.
func (d *document) position(offset int) Position {
	if d.lines == nil {
		d.lines = lineStarts(d.src)
	}
	offset = characterAt(d.src, min(max(offset, 0), len(d.src)))
	line, exact := slices.BinarySearch(d.lines, offset)
	if exact {
		line++
	}
	before := d.src[d.lines[line-1]:offset]
	return Position{Source: d.source, File: d.file, Line: line, Col: 1 + utf8.RuneCountInString(before)}
}

// characterAt returns the offset of the first byte of the character that contains the byte at offset.
// The TOML library may stop within a character.
func characterAt(src string, offset int) int {
	for back := 1; back < utf8.UTFMax && back <= offset; back++ {
		if _, n := utf8.DecodeRuneInString(src[offset-back:]); n > back {
			return offset - back
		}
	}
	return offset
}

func lineStarts(src string) []int {
	starts := []int{0}
	for i := range len(src) {
		if src[i] == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// attach stores the decoded values in the tree. If the two disagree, the values are used, with the
// nearest known positions. A fuzz test has found no such case.
func attach(n *node, value any) {
	n.value = value
	switch v := value.(type) {
	case map[string]any:
		attachTable(n, v)
	case []map[string]any:
		for i, e := range v {
			attach(n.item(i), e)
		}
		n.items = n.items[:len(v)]
	case []any:
		for i, e := range v {
			attach(n.item(i), e)
		}
		n.items = n.items[:len(v)]
	}
}

func attachTable(n *node, table map[string]any) {
	for _, name := range keys(table) {
		if n.fields[name] == nil {
			n.add(name, &node{key: n.key, at: n.at})
		}
		attach(n.fields[name], table[name])
	}
	known := n.order[:0]
	for _, name := range n.order {
		if _, ok := table[name]; ok {
			known = append(known, name)
		}
	}
	n.order = known
}

func (n *node) item(i int) *node {
	if i >= len(n.items) {
		n.items = append(n.items, &node{key: n.key, at: n.at})
	}
	return n.items[i]
}
