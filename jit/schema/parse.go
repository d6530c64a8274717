package schema

import "strconv"

// Parse reads a schema: an optional name, the arguments, "->" and the returned
// types, "()" for none. White space, including line breaks, may separate tokens.
// The error is a *SyntaxError.
func Parse(s string) (Schema, error) {
	p := &parser{in: s, named: map[string]bool{}}
	p.next()
	schema := p.schema()
	if p.err != nil {
		return Schema{}, p.err
	}
	return schema, nil
}

// parser is a recursive-descent parser. After the first error all tokens are the end
// of the input, so that no rule has to check err.
type parser struct {
	in  string
	tok token
	err *SyntaxError

	named     map[string]bool // arguments so far
	defaulted bool            // one of them has a default
}

func (p *parser) schema() Schema {
	var s Schema
	if p.tok.kind == word {
		s.Name = p.qualifiedName()
	}
	p.expect("(")
	s.Args = commaList(p, ")", p.arg)
	p.expect("->")
	s.Returns = p.returns()
	if p.tok.kind != eof {
		p.fail(p.tok, "the end of the schema")
	}
	return s
}

// qualifiedName reads name, ns::name or ns::name.overload.
func (p *parser) qualifiedName() string {
	name := p.word("a name")
	if p.accept("::") {
		name += "::" + p.word("a name")
	}
	if p.accept(".") {
		name += "." + p.word("an overload's name")
	}
	return name
}

// commaList reads items up to the closing token, which it consumes.
func commaList[T any](p *parser, closing string, item func() T) []T {
	if p.accept(closing) {
		return nil
	}
	var list []T
	for p.err == nil {
		list = append(list, item())
		if p.accept(closing) {
			return list
		}
		if !p.accept(",") {
			p.fail(p.tok, strconv.Quote(",")+" or "+strconv.Quote(closing))
		}
	}
	return nil
}

func (p *parser) returns() []Type {
	if p.accept("(") {
		return commaList(p, ")", p.typ)
	}
	return []Type{p.typ()}
}

func (p *parser) arg() Arg {
	if p.tok.text == "*" {
		p.fail(p.tok, "an argument (keyword-only arguments are not supported: calls are positional)")
	}
	a := Arg{Type: p.typ()}
	at := p.tok
	a.Name = p.word("an argument's name")
	if p.named[a.Name] {
		p.fail(at, "a name that no earlier argument has")
	}
	p.named[a.Name] = true
	if p.accept("=") {
		v := p.value(a.Type)
		a.Default, p.defaulted = &v, true
	} else if p.defaulted {
		p.fail(p.tok, `"=" and a default, as an earlier argument has one`)
	}
	return a
}

// typ reads a type, for example Tensor(a!)?, int[2] or float?.
func (p *parser) typ() Type {
	var t Type
	at := p.tok
	if t.Kind = kindNamed(p.word(typeWords)); t.Kind == Invalid {
		p.suggest(at, typeWords, typeLike(at.text))
	}
	if p.accept("[") {
		t.Len = p.listLen()
		t.Kind = t.Kind.list()
	}
	if t.Kind == Invalid {
		p.fail(at, "a type that lists can hold: Tensor, int, float, bool or str")
	}
	if t.Kind == Tensor || t.Kind == TensorList {
		t.Alias, t.Mutable = p.alias()
	}
	t.Optional = p.accept("?")
	return t
}

const typeWords = "a type (Tensor, int, float, bool, str, Device or ScalarType)"

func kindNamed(s string) Kind {
	if s == "SymInt" {
		return Int
	}
	for k := Tensor; k <= DType; k++ {
		if k.String() == s {
			return k
		}
	}
	return Invalid
}

// listLen reads what follows "[": "]" for any length or "2]".
func (p *parser) listLen() int {
	at, n := p.tok, 0
	if p.tok.kind == number {
		var err error
		if n, err = strconv.Atoi(p.tok.text); err != nil || n < 1 || n > 1<<16 {
			p.fail(at, "a length from 1 to 65536")
		}
		p.next()
	}
	p.expect("]")
	return n
}

// alias reads "(a)" or "(a!)" if one follows.
func (p *parser) alias() (set string, mutable bool) {
	if !p.accept("(") {
		return "", false
	}
	set = p.word("an alias set, as in Tensor(a!)")
	mutable = p.accept("!")
	p.expect(")")
	return set, mutable
}
