package opconfig

import (
	"fmt"
	"io/fs"
)

// The limits of a configuration bound the cost of reading it. Values, bytes and folder entries
// are counted over all its files.
const (
	maxBytes     = 1 << 20  // of all files
	maxFiles     = 1000     // files, the included ones among them
	maxValues    = 20_000   // names in keys and headers, arrays and their elements
	maxDepth     = 16       // tables and arrays around a value, the names of dotted keys included
	maxKey       = 1 << 10  // bytes of a value's full key, its tables included
	maxString    = 16 << 10 // bytes of one string or other scalar
	maxPath      = 1 << 10  // bytes of a path or glob
	maxExpanded  = 1 << 20  // bytes that variables add
	maxInherited = 1 << 20  // default flags, counted for each module that inherits them
	maxEntries   = 100_000  // folder entries that globs may read
	maxMistakes  = 100      // after which reading stops
	maxSources   = 500      // [[source]] tables of a module
	maxOps       = 500      // operators of a module
	maxParts     = 4096     // operators of a module times the combinations of its axes' values
)

// excess is the first position in a file that exceeds a limit.
type excess struct {
	at  int
	msg string
}

// nesting describes the tables and arrays around the scanner's position: their number, and the bytes
// of their names.
type nesting struct{ depth, bytes int }

// exceed records that a limit is exceeded, unless another one is already, and ends the scan.
func (s *scanner) exceed(at int, format string, args ...any) {
	if s.over == nil {
		s.over = &excess{at, fmt.Sprintf(format, args...)}
	}
	s.pos = len(s.src)
}

// enter enters a table or array.
func (s *scanner) enter(at, name int) {
	s.count(at)
	s.in.depth++
	s.in.bytes += name
	switch {
	case s.in.depth > maxDepth:
		s.exceed(at, "nested too deep: expected at most %d tables and arrays around a value, the names of a dotted key included", maxDepth)
	case s.in.bytes > maxKey:
		s.exceed(at, "the key is too long: expected at most %d bytes, with the names of its tables", maxKey)
	}
}

// count counts one value.
func (s *scanner) count(at int) {
	if s.values++; s.values > s.left {
		s.exceed(at, "too many values: expected at most %d names in keys, arrays and elements of arrays in all files", maxValues)
	}
}

// measure limits the text of a scalar, which begins at offset at and ends at the scanner's position.
func (s *scanner) measure(at int) {
	if n := s.pos - at; n > maxString {
		s.exceed(at, "a value of %d bytes is too long: expected at most %d", n, maxString)
	}
}

// full reports whether reading stops because of too many mistakes.
func (l *loader) full() bool { return len(l.mistakes) >= maxMistakes }

// countedFS bounds the folder entries that a load reads. If two symlinks lead back to their own
// folder, each level of a glob doubles the number of entries.
type countedFS struct {
	fs.FS
	left int
}

var (
	_ fs.ReadDirFS = (*countedFS)(nil)
	_ fs.StatFS    = (*countedFS)(nil)
)

// ReadDir implements [fs.ReadDirFS]. fs.Glob ignores its errors, so that callers must check
// usedUp afterwards.
func (c *countedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if c.usedUp() {
		return nil, fmt.Errorf("more than %d folder entries", maxEntries)
	}
	entries, err := fs.ReadDir(c.FS, name)
	c.left -= 1 + len(entries)
	return entries, err
}

// Stat implements [fs.StatFS].
func (c *countedFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(c.FS, name) }

func (c *countedFS) usedUp() bool { return c.left < 0 }

// checkSize limits the size of a module, because the cost of builds grows with it: they compare its
// operators with each other and with its sources, and name every part.
func (d *decoder) checkSize(m *Module, n *node) {
	switch {
	case len(m.Sources) > maxSources:
		d.fail(n.fields["source"].items[maxSources].key, "%s has %d sources; expected at most %d, where a glob counts as one", m.Name,
			len(m.Sources), maxSources)
	case len(m.Ops) > maxOps:
		d.fail(m.opNode(n, m.Ops[maxOps].Name).key, "%s has %d operators; expected at most %d", m.Name, len(m.Ops), maxOps)
	}
	parts := len(m.Ops)
	for _, a := range m.Axes {
		if parts *= max(len(a.Values), 1); parts > maxParts {
			d.failAxis(n, a, "", &Error{Msg: fmt.Sprintf("%s has too many parts: its operators times the values of its axes are more than %d",
				m.Name, maxParts)})
			return
		}
	}
}
