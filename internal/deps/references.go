package deps

import (
	"bytes"
	"slices"
)

// references are the names that the text of a file refers to.
type references struct {
	probes          []probe
	computedProbe   bool // __has_include or __has_embed of a name that a macro makes
	computedInclude bool // #include of a name that a macro makes
	embeds          []embed
}

// probe is a name that the text of a file looks up.
type probe struct {
	name   string
	quoted bool // in quotes: looked up beside the file first
	has    bool // the result depends on the existence of the file, too
	next   bool // the compiler may use a later search folder although an earlier one has the name
}

// parseReferences returns the references in the text of a C++ file. It also finds names
// in comments and in branches that are not taken.
func parseReferences(text []byte) references {
	var r references
	text = spliced(text)
	r.conditions(text)
	for _, mark := range []string{"#", "%:", "??="} {
		r.directives(text, mark)
	}
	r.embeds = embedsIn(text)
	return r
}

// conditions adds the names in __has_include and __has_embed.
func (r *references) conditions(text []byte) {
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte("__has_"))
		if i < 0 {
			return
		}
		before := text[:at+i]
		word := identifier(text[at+i:])
		at += i + len(word)
		switch word {
		case "__has_include", "__has_include_next", "__has_embed":
			r.condition(before, text[at:], word == "__has_include_next")
		}
	}
}

// condition adds the name in one condition. before and after are the text around its word.
func (r *references) condition(before, after []byte, next bool) {
	argument, called := bytes.CutPrefix(skipBlanks(after), []byte("("))
	if name, quoted, ok := literalName(argument); ok {
		r.probes = append(r.probes, probe{name, quoted, true, next})
	} else if body, defined := macroBody(before); defined {
		r.computedProbe = r.computedProbe || body
	} else {
		r.computedProbe = r.computedProbe || called
	}
}

// directives adds the quoted names of directives that begin with the mark. It leaves out
// names in angle brackets: the folder of the file that was read determines their places.
func (r *references) directives(text []byte, mark string) {
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte(mark))
		if i < 0 {
			return
		}
		before := text[:at+i]
		at += i + len(mark)
		after := skipBlanks(text[at:])
		word := identifier(after)
		if !slices.Contains([]string{"include", "include_next", "import", "embed"}, word) {
			continue
		}
		name, quoted, ok := literalName(after[len(word):])
		switch {
		case ok && quoted:
			r.probes = append(r.probes, probe{name: name, quoted: true})
		case !ok && startsLine(before):
			r.computedInclude = true
		}
	}
}

// startsLine reports whether a directive may follow: only blanks and the end of a
// comment precede it on its line.
func startsLine(before []byte) bool {
	line := bytes.TrimRight(before[bytes.LastIndexByte(before, '\n')+1:], " \t\v\f")
	return len(line) == 0 || bytes.HasSuffix(line, []byte("*/"))
}

// macroBody reports whether a text ends in the line of a #define, and whether
// that line has reached the replacement of the macro.
func macroBody(before []byte) (body, defined bool) {
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	if line, defined = bytes.CutPrefix(skipBlanks(line), []byte("#")); defined {
		line, defined = bytes.CutPrefix(skipBlanks(line), []byte("define"))
	}
	return len(bytes.TrimSpace(line)) > 0, defined
}

// literalName reads "name" or <name> on the same line.
func literalName(text []byte) (name string, quoted, ok bool) {
	text = skipBlanks(text)
	if len(text) == 0 || text[0] != '"' && text[0] != '<' {
		return "", false, false
	}
	end := map[byte]byte{'"': '"', '<': '>'}[text[0]]
	n := bytes.IndexByte(text[1:], end)
	if n <= 0 || n > 4096 || bytes.ContainsAny(text[1:1+n], "\n\t") {
		return "", false, false
	}
	return string(text[1 : 1+n]), text[0] == '"', true
}

// identifier returns the identifier at the start of a text, "" if there is none.
func identifier(text []byte) string {
	n := 0
	for n < len(text) && isWord(text[n]) {
		n++
	}
	return string(text[:n])
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// skipBlanks skips blanks and comments.
func skipBlanks(text []byte) []byte {
	for {
		text = bytes.TrimLeft(text, " \t\v\f")
		if !bytes.HasPrefix(text, []byte("/*")) {
			return text
		}
		_, text, _ = bytes.Cut(text[2:], []byte("*/"))
	}
}

// spliced joins each line that ends in a backslash with the next one, as the
// preprocessor does before anything else.
func spliced(text []byte) []byte {
	var out []byte
	from := 0
	for at := 0; at < len(text); at++ {
		i := bytes.IndexByte(text[at:], '\\')
		if i < 0 {
			break
		}
		at += i
		if n := lineEnd(text[at+1:]); n > 0 {
			out = append(out, text[from:at]...)
			at += n
			from = at + 1
		}
	}
	if from == 0 {
		return text
	}
	return append(out, text[from:]...)
}

// lineEnd returns the length of blanks and a line end at the start of a text, 0
// if there is none.
func lineEnd(text []byte) int {
	rest := bytes.TrimLeft(text, " \t\v\f\r")
	if len(rest) == 0 || rest[0] != '\n' {
		return 0
	}
	return len(text) - len(rest) + 1
}
