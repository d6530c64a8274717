package depfile

import "strings"

// Tries are the files that a linker has looked for.
type Tries struct {
	Found  []string // and read
	Absent []string // under these paths was nothing
	Vain   bool     // the linker tells of all that it did not find, too: GNU ld does, LLD does not
}

// ParseTries reads what --verbose makes GNU ld and LLD print, between their
// other output. Of other linkers it understands nothing.
func ParseTries(output []byte) Tries {
	var t Tries
	for line := range strings.Lines(string(output)) {
		t.line(strings.TrimRight(line, "\r\n"))
	}
	t.Found, t.Absent = unique(t.Found), unique(t.Absent)
	return t
}

func (t *Tries) line(line string) {
	if p, ok := strings.CutPrefix(line, "attempt to open "); ok {
		if at, ok := strings.CutSuffix(p, " succeeded"); ok {
			t.Found, t.Vain = append(t.Found, at), true
		} else if at, ok := strings.CutSuffix(p, " failed"); ok {
			t.Absent, t.Vain = append(t.Absent, at), true
		}
	} else if p, ok := strings.CutPrefix(line, "opened script file "); ok {
		t.Found, t.Vain = append(t.Found, p), true
	} else if p, ok := strings.CutPrefix(line, "cannot find script file "); ok {
		t.Absent, t.Vain = append(t.Absent, p), true
	} else if p, ok := strings.CutPrefix(line, "ld.lld: "); ok && !strings.HasPrefix(p, "error: ") && !strings.HasPrefix(p, "warning: ") {
		t.Found = append(t.Found, p)
	}
}
