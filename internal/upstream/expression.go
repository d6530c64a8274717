package upstream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// value is the value of a Python expression: None (v is nil), a bool, an int64, a string, or unknown.
type value struct {
	v       any
	unknown bool   // it depends on the machine
	text    string // the expression, for an unknown value
}

func unknown(text string) value { return value{unknown: true, text: strings.TrimSpace(text)} }

// format returns the value as an f-string inserts it. An unknown value is its expression in braces.
func (v value) format() string {
	switch x := v.v.(type) {
	case string:
		return x
	case bool:
		if x {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(x, 10)
	}
	if v.unknown {
		return "{" + v.text + "}"
	}
	return "None"
}

// truth reports whether the value is true as a condition in Python.
func (v value) truth() bool {
	switch x := v.v.(type) {
	case string:
		return x != ""
	case bool:
		return x
	case int64:
		return x != 0
	}
	return false
}

// names are the known values of names in an expression. Other names, and calls of functions, are unknown, except that
// os.environ.get(NAME, DEFAULT) has the value DEFAULT: the package does not read variables of this machine.
type names map[string]string

// evaluate returns the value of a Python expression: literals, f-strings, names, attributes, calls, comparisons, conditions.
func evaluate(text string, known names) (value, error) { return evaluateAt(text, known, 0) }

func evaluateAt(text string, known names, depth int) (value, error) {
	if len(text) > maxText {
		return value{}, fmt.Errorf("the expression has %d bytes, more than %d", len(text), maxText)
	}
	p := &expression{known: known, depth: depth}
	for s := newScanner(text); ; {
		t := s.next()
		if t.kind == badToken {
			return value{}, fmt.Errorf("%q: %s", text, t.text)
		}
		if t.kind == endToken {
			p.tokens = append(p.tokens, t)
			break
		}
		if t.kind != lineToken {
			p.tokens = append(p.tokens, t)
		}
	}
	p.source = text
	v, err := p.condition()
	if err == nil && p.peek().kind != endToken {
		err = fmt.Errorf("expected the end of the expression, got %q", p.peek().text)
	}
	if err != nil {
		return value{}, fmt.Errorf("%q: %w", text, err)
	}
	return v, nil
}

// expression is a recursive-descent parser, which evaluates what it reads.
type expression struct {
	source string
	tokens []token
	at     int
	known  names
	depth  int
}

func (p *expression) peek() token { return p.tokens[p.at] }

func (p *expression) next() token {
	t := p.tokens[p.at]
	if t.kind != endToken {
		p.at++
	}
	return t
}

// accept consumes one of the words or signs.
func (p *expression) accept(texts ...string) (string, bool) {
	t := p.peek()
	if t.kind == nameToken || t.kind == signToken {
		for _, text := range texts {
			if t.text == text {
				p.at++
				return text, true
			}
		}
	}
	return "", false
}

func (p *expression) expect(text string) error {
	if _, ok := p.accept(text); !ok {
		return fmt.Errorf("expected %q, got %q", text, p.peek().text)
	}
	return nil
}

// since returns the source from token start up to the current one, which is not included.
func (p *expression) since(start int) string {
	return p.source[p.tokens[start].offset:p.tokens[p.at].offset]
}

// enter counts a nested expression; the error is that of too many.
func (p *expression) enter() error {
	if p.depth++; p.depth > maxDepth {
		return fmt.Errorf("more than %d nested expressions", maxDepth)
	}
	return nil
}

// condition reads A, or A if B else C.
func (p *expression) condition() (value, error) {
	if err := p.enter(); err != nil {
		return value{}, err
	}
	defer func() { p.depth-- }()
	start := p.at
	v, err := p.operators(0)
	if err != nil {
		return v, err
	}
	if _, ok := p.accept("if"); !ok {
		return v, nil
	}
	cond, err := p.operators(0)
	if err == nil {
		err = p.expect("else")
	}
	if err != nil {
		return v, err
	}
	other, err := p.condition()
	switch {
	case err != nil:
		return v, err
	case cond.unknown:
		return unknown(p.since(start)), nil
	case cond.truth():
		return v, nil
	}
	return other, nil
}

// operators reads an expression of operators at a level of precedence or a higher one: 0 or, 1 and, 2 not, 3 comparisons, 4 +.
func (p *expression) operators(level int) (value, error) {
	levels := [][]string{{"or"}, {"and"}, nil, {"==", "!=", "<", ">", "<=", ">=", "in", "not", "is"}, {"+"}}
	if level == len(levels) {
		return p.operand()
	}
	start := p.at
	if level == 2 {
		if _, ok := p.accept("not"); ok {
			if err := p.enter(); err != nil {
				return value{}, err
			}
			v, err := p.operators(level)
			p.depth--
			if err != nil || v.unknown {
				return unknown(p.since(start)), err
			}
			return value{v: !v.truth()}, nil
		}
		return p.operators(level + 1)
	}
	v, err := p.operators(level + 1)
	for n := 0; err == nil; n++ {
		op, ok := p.accept(levels[level]...)
		if !ok {
			return v, nil
		}
		if op == "not" {
			if err := p.expect("in"); err != nil {
				return v, err
			}
			op = "not in"
		}
		if op == "is" {
			if _, ok := p.accept("not"); ok {
				op = "is not"
			}
		}
		var w value
		if w, err = p.operators(level + 1); err == nil {
			v = apply(op, v, w, p.since(start))
			if level == 3 && n > 0 {
				v = unknown(p.since(start)) // Python chains comparisons
			}
		}
	}
	return v, err
}

// apply applies a binary operator. The result is unknown if the operands do not determine it; text is its expression.
func apply(op string, v, w value, text string) value {
	switch {
	case op == "or" && !v.unknown && v.truth(), op == "and" && !v.unknown && !v.truth():
		return v
	case v.unknown || w.unknown:
		return unknown(text)
	case op == "or", op == "and":
		return w
	case op == "==", op == "is":
		return value{v: v.v == w.v}
	case op == "!=", op == "is not":
		return value{v: v.v != w.v}
	}
	if a, ok := v.v.(string); ok {
		if b, ok := w.v.(string); ok {
			switch op {
			case "+":
				return value{v: a + b}
			case "in":
				return value{v: strings.Contains(b, a)}
			case "not in":
				return value{v: !strings.Contains(b, a)}
			}
		}
	}
	a, isInt := v.v.(int64)
	b, both := w.v.(int64)
	if isInt && both {
		switch op {
		case "+":
			return value{v: a + b}
		case "<":
			return value{v: a < b}
		case ">":
			return value{v: a > b}
		case "<=":
			return value{v: a <= b}
		case ">=":
			return value{v: a >= b}
		}
	}
	return unknown(text)
}

// operand reads a literal, a name or an expression in parentheses, and what follows it: .name, (arguments), [index].
func (p *expression) operand() (value, error) {
	if err := p.enter(); err != nil {
		return value{}, err
	}
	defer func() { p.depth-- }()
	start := p.at
	t := p.next()
	var v value
	switch {
	case t.kind == stringToken:
		parts := []token{t}
		for p.peek().kind == stringToken {
			parts = append(parts, p.next())
		}
		var err error
		if v, err = p.literals(parts); err != nil {
			return v, err
		}
	case t.kind == numberToken:
		n, err := strconv.ParseInt(strings.ReplaceAll(t.text, "_", ""), 0, 64)
		if err != nil {
			return unknown(t.text), nil // a float, or a large number
		}
		v = value{v: n}
	case t.kind == nameToken:
		v = p.name(t.text)
	case t.text == "(":
		inner, err := p.condition()
		if err == nil {
			err = p.expect(")")
		}
		if err != nil {
			return inner, err
		}
		v = inner
	case t.text == "-":
		inner, err := p.operand()
		if n, ok := inner.v.(int64); ok && err == nil {
			return value{v: -n}, nil
		}
		return unknown(p.since(start)), err
	default:
		return v, fmt.Errorf("expected a value, got %q", t.text)
	}
	return p.trailers(v, start)
}

func (p *expression) name(name string) value {
	switch name {
	case "True", "False":
		return value{v: name == "True"}
	case "None":
		return value{}
	}
	if s, ok := p.known[name]; ok {
		return value{v: s}
	}
	return unknown(name)
}

// trailers reads what follows a value v that begins at token start: .name, (arguments), [index].
func (p *expression) trailers(v value, start int) (value, error) {
	for {
		op, ok := p.accept(".", "(", "[")
		if !ok {
			return v, nil
		}
		switch op {
		case ".":
			if t := p.next(); t.kind != nameToken {
				return v, fmt.Errorf("expected a name after the dot, got %q", t.text)
			}
			v = unknown(p.since(start))
		default:
			callee := v
			args, err := p.arguments(map[string]string{"(": ")", "[": "]"}[op])
			if err != nil {
				return v, err
			}
			v = unknown(p.since(start))
			if op == "(" && callee.text == "os.environ.get" {
				v = value{}
				if len(args) > 1 {
					v = args[1]
				}
			}
		}
	}
}

// arguments reads values up to the closing bracket. It drops the names of keyword arguments.
func (p *expression) arguments(closing string) ([]value, error) {
	var list []value
	for {
		if _, ok := p.accept(closing); ok {
			return list, nil
		}
		if p.peek().kind == nameToken && p.tokens[p.at+1].text == "=" && p.tokens[p.at+1].kind == signToken {
			p.at += 2
		}
		v, err := p.condition()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if _, ok := p.accept(","); !ok {
			return list, p.expect(closing)
		}
	}
}

// literals joins adjacent string literals.
func (p *expression) literals(parts []token) (value, error) {
	var b strings.Builder
	anyUnknown := false
	for _, t := range parts {
		text, isUnknown, err := p.literal(t)
		if err != nil {
			return value{}, err
		}
		b.WriteString(text)
		anyUnknown = anyUnknown || isUnknown
	}
	if b.Len() > maxText {
		return value{}, errors.New("the string is too long")
	}
	return value{v: b.String(), unknown: anyUnknown, text: b.String()}, nil
}
