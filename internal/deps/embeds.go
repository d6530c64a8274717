package deps

import "bytes"

// embed is a file that an assembler directive reads: .incbin its bytes, .include
// its text.
type embed struct {
	name    string // "" if macros or several string literals make it
	text    bool   // the file is assembler text, which may read more
	certain bool   // the quotes are escaped, so that they belong to the directive
}

// embedsIn returns the files that assembler directives in a C++ or assembler text
// read. It ignores comments: a unit with a directive in a comment would otherwise be
// compiled at each build.
func embedsIn(text []byte) []embed {
	if len(assemblerDirectives(text)) == 0 {
		return nil
	}
	text = withoutComments(text)
	var out []embed
	for _, at := range assemblerDirectives(text) {
		word := directiveAt(text[at:])
		e := embedded(text[at+len(word):])
		e.text = !bytes.EqualFold(word, []byte(".incbin"))
		out = append(out, e)
	}
	return out
}

// assemblerDirectives returns the offsets in a text of possible .incbin and .include.
func assemblerDirectives(text []byte) []int {
	var out []int
	for at := 0; ; at++ {
		i := bytes.IndexByte(text[at:], '.')
		if i < 0 {
			return out
		}
		at += i
		if word := directiveAt(text[at:]); word != nil && !isMember(text[:at]) {
			out = append(out, at)
		}
	}
}

// directiveAt returns the directive at the start of a text as written, nil if there
// is none. Assemblers ignore its case.
func directiveAt(text []byte) []byte {
	for _, word := range []string{".incbin", ".include"} {
		n := len(word)
		if len(text) >= n && bytes.EqualFold(text[:n], []byte(word)) && (len(text) == n || !isWord(text[n])) {
			return text[:n]
		}
	}
	return nil
}

// isMember reports whether a name after these bytes and a dot is a member or
// the end of a file's name, not a directive: "x.include", but not "\n.include".
func isMember(before []byte) bool {
	n := len(before)
	if n == 0 {
		return false
	}
	escape := n > 1 && before[n-2] == '\\' && bytes.IndexByte([]byte("ntvfr"), before[n-1]) >= 0
	return !escape && (isWord(before[n-1]) || before[n-1] == ')' || before[n-1] == ']' || before[n-1] == '.')
}

// embedded reads the argument of a directive.
func embedded(after []byte) embed {
	for {
		after = bytes.TrimLeft(after, " \t")
		rest, escaped := bytes.CutPrefix(after, []byte(`\t`))
		if !escaped {
			break
		}
		after = rest
	}
	opened, certain := bytes.CutPrefix(after, []byte(`\"`))
	if !certain {
		var quoted bool
		if opened, quoted = bytes.CutPrefix(after, []byte(`"`)); !quoted {
			return embed{}
		}
	}
	name, _, closed := bytes.Cut(opened, []byte(`"`))
	name, escaped := bytes.CutSuffix(name, []byte(`\`))
	if !closed || escaped != certain || len(name) == 0 || len(name) > 4096 || bytes.ContainsAny(name, "\\\n\t\"") {
		return embed{}
	}
	return embed{name: string(name), certain: certain}
}

// withoutComments replaces comments by blanks. It recognizes string literals, raw
// string literals and character literals, which contain no comments.
func withoutComments(text []byte) []byte {
	var out []byte
	for at := 0; at < len(text); {
		n := tokenLength(text, at)
		if token := text[at : at+n]; bytes.HasPrefix(token, []byte("//")) || bytes.HasPrefix(token, []byte("/*")) {
			out = append(out, ' ')
		} else {
			out = append(out, token...)
		}
		at += n
	}
	return out
}

// tokenLength returns the length of the comment, literal or single byte at an offset
// of a text.
func tokenLength(text []byte, at int) int {
	rest := text[at:]
	until := func(from int, end string) int {
		i := bytes.Index(rest[from:], []byte(end))
		if i < 0 {
			return len(rest)
		}
		return from + i + len(end)
	}
	switch {
	case bytes.HasPrefix(rest, []byte("/*")):
		return until(2, "*/")
	case bytes.HasPrefix(rest, []byte("//")):
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			return i
		}
		return len(rest)
	case rest[0] == '"' && at > 0 && text[at-1] == 'R':
		delimiter, _, ok := bytes.Cut(rest[1:min(len(rest), 18)], []byte("("))
		if ok {
			return until(1, ")"+string(delimiter)+`"`)
		}
	case rest[0] == '\'' && at > 0 && isWord(text[at-1]) && bytes.IndexByte([]byte("uUL8"), text[at-1]) < 0:
		return 1 // between the digits of a number
	}
	if rest[0] == '"' || rest[0] == '\'' {
		return literalLength(rest)
	}
	return 1
}

// literalLength returns the length of a string or character literal, which ends
// at the end of its line at the latest.
func literalLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		case '\n':
			return i
		}
	}
	return len(text)
}
