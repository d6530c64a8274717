package upstream

import (
	"strconv"
	"strings"
)

// truth3 is the value of a condition of the preprocessor: false, true, or unknown.
type truth3 int8

const (
	no      truth3 = -1
	unclear truth3 = 0
	yes     truth3 = 1
)

func truthOf(b bool) truth3 {
	if b {
		return yes
	}
	return no
}

// macros has the values of macros that are known to be defined, and "" for macros that are known not to be defined. Other macros are
// unclear.
type macros map[string]string

// macrosOf returns the macros of a HIP compile with these flags.
func macrosOf(flags []string) macros {
	m := macros{"__HIPCC__": "1", "__HIP__": "1", "__HIP_PLATFORM_AMD__": "1", "__clang__": "1", "__cplusplus": "202002",
		"__CUDACC__": "", "__CUDA_ARCH__": "", "__HIPCC_RTC__": "", "CK_CODE_GEN_RTC": ""}
	for _, flag := range flags {
		if def, ok := strings.CutPrefix(flag, "-D"); ok {
			name, v, given := strings.Cut(def, "=")
			if !given {
				v = "1"
			}
			m[name] = v
		}
	}
	return m
}

// include is a directive #include.
type include struct {
	name    string
	angle   bool // <name>, not "name"
	line    int
	unclear bool // it depends on a condition that is unclear
}

// includes returns the includes of a C++ text whose conditions are not known to be false.
func includes(text string, known macros) []include {
	var list []include
	type level struct {
		taken   truth3 // the condition of the current branch
		earlier truth3 // whether the current branch or one before it was taken
	}
	var levels []level
	for _, d := range directives(text) {
		top := len(levels) - 1
		switch d.name {
		case "if", "ifdef", "ifndef":
			v := known.condition(d.name, d.rest)
			levels = append(levels, level{v, v})
		case "elif":
			if top >= 0 {
				v := min(known.condition("if", d.rest), -levels[top].earlier)
				levels[top].taken, levels[top].earlier = v, max(levels[top].earlier, v)
			}
		case "else":
			if top >= 0 {
				levels[top].taken = -levels[top].earlier
			}
		case "endif":
			if top >= 0 {
				levels = levels[:top]
			}
		case "include":
			live := yes
			for _, l := range levels {
				live = min(live, l.taken)
			}
			if inc, ok := includeOf(d.rest); ok && live != no {
				inc.line, inc.unclear = d.line, live == unclear
				list = append(list, inc)
			}
		}
		if len(levels) > maxDepth*10 {
			break
		}
	}
	return list
}

// includeOf reads the argument of a directive #include; ok is false for a macro.
func includeOf(rest string) (inc include, ok bool) {
	for _, q := range []string{`""`, "<>"} {
		if strings.HasPrefix(rest, q[:1]) {
			if end := strings.IndexByte(rest[1:], q[1]); end > 0 {
				return include{name: rest[1 : 1+end], angle: q == "<>"}, true
			}
		}
	}
	return include{}, false
}

// directive is a directive of the preprocessor: #name rest.
type directive struct {
	name, rest string
	line       int
}

// directives returns the directives of the preprocessor, with continued lines joined and comments removed.
func directives(text string) []directive {
	var list []directive
	line := 1
	for text != "" {
		n := logicalEnd(text)
		full := text[:n]
		at := line
		line += strings.Count(full, "\n") + 1
		text = strings.TrimPrefix(text[n:], "\n")
		// A line inside a comment of several lines is not a directive.
		start, hidden := withoutComments(full)
		if hidden {
			end := strings.Index(text, "*/")
			if end < 0 {
				break
			}
			line += strings.Count(text[:end], "\n")
			text = " " + text[end+2:]
		}
		rest, ok := strings.CutPrefix(strings.TrimSpace(start), "#")
		if !ok {
			continue
		}
		rest = strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(rest, "\\\r\n", " "), "\\\n", " "))
		k := wordLen(rest)
		list = append(list, directive{rest[:k], strings.TrimSpace(rest[k:]), at})
	}
	return list
}

// withoutComments removes the comments of a line. open reports whether the last one continues on the next line. "//" and "/*" in quotes
// do not begin a comment.
func withoutComments(s string) (text string, open bool) {
	if !strings.Contains(s, "/") {
		return s, false
	}
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && i+1 < len(s) {
				b.WriteByte(c)
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"':
			quote = c
		case strings.HasPrefix(s[i:], "//"):
			return b.String(), false
		case strings.HasPrefix(s[i:], "/*"):
			end := strings.Index(s[i+2:], "*/")
			if end < 0 {
				return b.String(), true
			}
			b.WriteByte(' ')
			i += end + 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String(), false
}

// condition evaluates the condition of #if, #ifdef or #ifndef.
func (m macros) condition(kind, rest string) truth3 {
	switch kind {
	case "ifdef":
		return m.defined(strings.TrimSpace(rest))
	case "ifndef":
		return -m.defined(strings.TrimSpace(rest))
	}
	c := &conditionParser{tokens: scanAll(newCScanner(rest)), known: m}
	v, ok := c.binary(0)
	if !ok || c.bad || c.tokens[c.at].kind != endToken || v.unclear {
		return unclear
	}
	return truthOf(v.n != 0)
}

func (m macros) defined(name string) truth3 {
	if v, ok := m[name]; ok {
		return truthOf(v != "")
	}
	return unclear
}

// number is the value of a part of a condition.
type number struct {
	n       int64
	unclear bool
}

func numberOf(t truth3) number { return number{max(0, int64(t)), t == unclear} }

// conditionParser evaluates the condition of an #if. A part that it cannot read makes the condition unclear.
type conditionParser struct {
	tokens []token
	at     int
	depth  int
	known  macros
	bad    bool
}

func (c *conditionParser) accept(text string) bool {
	if t := c.tokens[c.at]; t.text == text && t.kind != endToken && t.kind != stringToken {
		c.at++
		return true
	}
	return false
}

func (c *conditionParser) binary(level int) (number, bool) {
	levels := [][]string{{"|", "|"}, {"&", "&"}, {"==", "!=", "<=", ">=", "<", ">"}}
	if level == len(levels) {
		return c.unary()
	}
	v, ok := c.binary(level + 1)
	for ok {
		op := c.operator(levels[level], level < 2)
		if op == "" {
			return v, true
		}
		var w number
		if w, ok = c.binary(level + 1); ok {
			v = compute(op, v, w)
		}
	}
	return v, ok
}

// operator consumes one of the operators and returns it, "" if none follows. With pair it consumes two equal tokens, || or &&, which
// list has as "|" or "&".
func (c *conditionParser) operator(list []string, pair bool) string {
	if pair {
		if len(c.tokens)-c.at > 1 && c.tokens[c.at].text == list[0] && c.tokens[c.at+1].text == list[0] {
			c.at += 2
			return list[0]
		}
		return ""
	}
	for _, op := range list {
		if c.accept(op) {
			return op
		}
	}
	return ""
}

func compute(op string, v, w number) number {
	is := func(b bool) number { return numberOf(truthOf(b)) }
	switch {
	case op == "|" && (!v.unclear && v.n != 0 || !w.unclear && w.n != 0):
		return is(true)
	case op == "&" && (!v.unclear && v.n == 0 || !w.unclear && w.n == 0):
		return is(false)
	case v.unclear || w.unclear:
		return number{unclear: true}
	}
	switch op {
	case "|":
		return is(false)
	case "&":
		return is(true)
	case "==":
		return is(v.n == w.n)
	case "!=":
		return is(v.n != w.n)
	case "<=":
		return is(v.n <= w.n)
	case ">=":
		return is(v.n >= w.n)
	case "<":
		return is(v.n < w.n)
	}
	return is(v.n > w.n)
}

func (c *conditionParser) unary() (number, bool) {
	if c.depth++; c.depth > maxDepth {
		return number{}, false
	}
	defer func() { c.depth-- }()
	t := c.tokens[c.at]
	switch {
	case c.accept("!"):
		v, ok := c.unary()
		return number{1 - nonzero(v.n), v.unclear}, ok
	case c.accept("("):
		v, ok := c.binary(0)
		return v, ok && c.accept(")")
	case t.text == "defined" && t.kind == nameToken:
		c.at++
		open := c.accept("(")
		name := c.tokens[c.at]
		if name.kind != nameToken {
			return number{}, false
		}
		c.at++
		return numberOf(c.known.defined(name.text)), !open || c.accept(")")
	case t.kind == nameToken:
		c.at++
		if v, ok := c.known[t.text]; ok {
			n, err := strconv.ParseInt(v, 0, 64)
			return number{n, v != "" && err != nil}, true // a name that is not defined is 0
		}
		if c.accept("(") { // __has_include(...) and the like
			c.bad = true
		}
		return number{unclear: true}, true
	case t.kind == numberToken:
		c.at++
		n, err := strconv.ParseInt(strings.TrimRight(t.text, "uUlL"), 0, 64)
		return number{n, err != nil}, true
	}
	return number{}, false
}

// nonzero returns 1 for a number other than 0, else 0.
func nonzero(n int64) int64 {
	if n != 0 {
		return 1
	}
	return 0
}
