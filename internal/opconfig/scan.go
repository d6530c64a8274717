package opconfig

import "strings"

// The TOML library checks the syntax and decodes the values, but does not return the offsets of
// keys. scanner reads the same text only for the offsets. For a text that the library refuses,
// its tree has no meaning.

// node is a value of the document with its position.
type node struct {
	key    int // offset of the key's last part; for an element, of the element
	at     int // offset of the value; for a table with a header, same as key
	value  any // as the TOML library decoded it
	fields map[string]*node
	order  []string // names of fields as they appear in the file
	items  []*node  // elements of an array or tables under [[name]]

	closed bool // defined by a header or a value, so that defining it again is an error
}

// duplicate is a key that is defined twice.
type duplicate struct {
	name        string
	first, next int // offsets
}

type scanner struct {
	src  string
	pos  int
	root *node
	dup  *duplicate // the first duplicate, nil for none

	in     nesting
	values int     // read so far
	left   int     // limit of values
	over   *excess // the first limit that is exceeded
}

// scan reads src into a tree. left is the largest number of values that it may have.
func scan(src string, left int) *scanner {
	s := &scanner{src: src, root: &node{}, left: left}
	table := s.root
	for s.skipBlank(); s.pos < len(s.src); s.skipBlank() {
		at := s.pos
		switch {
		case s.take("[["):
			s.in = nesting{}
			table = s.appendTable(s.keyPath())
			s.enter(at, 0)
			s.take("]]")
		case s.take("["):
			s.in = nesting{}
			table = s.openTable(s.keyPath())
			s.take("]")
		default:
			s.pair(table)
		}
	}
	return s
}

// segment is one name of a dotted key.
type segment struct {
	name string
	at   int
}

// keyPath reads a dotted key and enters the tables that it names.
func (s *scanner) keyPath() []segment {
	var segments []segment
	for {
		s.skipSpace()
		at := s.pos
		segments = append(segments, segment{s.keyName(), at})
		s.enter(at, s.pos-at+1)
		s.skipSpace()
		if !s.take(".") {
			return segments
		}
	}
}

func (s *scanner) keyName() string {
	if s.peek() == '"' || s.peek() == '\'' {
		var b strings.Builder
		s.pos = walkString(s.src, s.pos, func(_ int, decoded string) { b.WriteString(decoded) })
		return b.String()
	}
	start := s.pos
	s.skipTo(" \t\r\n.=[]{}#,\"'")
	return s.src[start:s.pos]
}

// pair reads "key = value" into table.
func (s *scanner) pair(table *node) {
	start, outer := s.pos, s.in
	defer func() { s.in = outer }()
	segments := s.keyPath()
	if !s.take("=") || s.pos == start+1 {
		s.pos = len(s.src) // not TOML: the rest has no meaning
		return
	}
	s.skipSpace()
	last := segments[len(segments)-1]
	table = s.descend(table, segments[:len(segments)-1])
	value := s.value()
	value.key, value.closed = last.at, true
	if old := table.fields[last.name]; old != nil {
		s.duplicate(last, old)
		return
	}
	table.add(last.name, value)
}

// value reads any value.
func (s *scanner) value() *node {
	n := &node{key: s.pos, at: s.pos}
	switch s.peek() {
	case '"', '\'':
		s.pos = walkString(s.src, s.pos, func(int, string) {})
		s.measure(n.at)
	case '[':
		s.pos++
		s.array(n)
	case '{':
		s.pos++
		s.elements("}", func() { s.pair(n) })
	default:
		s.skipTo(",]}#\r\n")
		s.measure(n.at)
	}
	return n
}

// array reads an array after its opening bracket.
func (s *scanner) array(n *node) {
	outer := s.in
	s.enter(n.at, 0)
	s.elements("]", func() {
		s.count(s.pos)
		n.items = append(n.items, s.value())
	})
	s.in = outer
}

// elements reads the elements between brackets or braces, and the closing one.
func (s *scanner) elements(closing string, read func()) {
	for s.skipBlank(); s.pos < len(s.src) && !s.take(closing); s.skipBlank() {
		start := s.pos
		if !s.take(",") {
			read()
		}
		if s.pos == start {
			s.pos++ // an unexpected character
		}
	}
}

// openTable enters the table of a [header].
func (s *scanner) openTable(segments []segment) *node {
	last := segments[len(segments)-1]
	parent := s.descend(s.root, segments[:len(segments)-1])
	t := parent.fields[last.name]
	if t == nil {
		t = &node{key: last.at, at: last.at}
		parent.add(last.name, t)
	} else if t.closed {
		s.duplicate(last, t)
		return &node{key: last.at, at: last.at}
	} else {
		t.key, t.at = last.at, last.at // an earlier key has only implied the table
	}
	t.closed = true
	return t
}

// appendTable enters a new table of a [[header]].
func (s *scanner) appendTable(segments []segment) *node {
	last := segments[len(segments)-1]
	parent := s.descend(s.root, segments[:len(segments)-1])
	list := parent.fields[last.name]
	if list == nil {
		list = &node{key: last.at, at: last.at, closed: true}
		parent.add(last.name, list)
	}
	t := &node{key: last.at, at: last.at, closed: true}
	list.items = append(list.items, t)
	return t
}

// descend follows the leading names of a key and creates the tables that they imply. The name of
// an array of tables stands for its last table.
func (s *scanner) descend(n *node, segments []segment) *node {
	for _, p := range segments {
		child := n.fields[p.name]
		if child == nil {
			child = &node{key: p.at, at: p.at}
			n.add(p.name, child)
		}
		if len(child.items) > 0 {
			child = child.items[len(child.items)-1]
		}
		n = child
	}
	return n
}

func (n *node) add(name string, child *node) {
	if n.fields == nil {
		n.fields = map[string]*node{}
	}
	n.fields[name] = child
	n.order = append(n.order, name)
}

func (s *scanner) duplicate(p segment, old *node) {
	if s.dup == nil {
		s.dup = &duplicate{name: p.name, first: old.key, next: p.at}
	}
}

// skipBlank skips white space, line ends and comments.
func (s *scanner) skipBlank() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		case '#':
			s.skipTo("\n")
		default:
			return
		}
	}
}

func (s *scanner) skipSpace() {
	for s.pos < len(s.src) && (s.src[s.pos] == ' ' || s.src[s.pos] == '\t') {
		s.pos++
	}
}

func (s *scanner) skipTo(stop string) {
	if n := strings.IndexAny(s.src[s.pos:], stop); n >= 0 {
		s.pos += n
	} else {
		s.pos = len(s.src)
	}
}

func (s *scanner) peek() byte {
	if s.pos >= len(s.src) {
		return 0
	}
	return s.src[s.pos]
}

func (s *scanner) take(text string) bool {
	if !strings.HasPrefix(s.src[s.pos:], text) {
		return false
	}
	s.pos += len(text)
	return true
}
