package schema

import (
	"math"
	"strconv"
	"strings"
)

// value reads the default of an argument of type t.
func (p *parser) value(t Type) Value {
	if t.Optional && p.tok.text == "None" {
		p.next()
		return None()
	}
	if t.Kind.Elem() != Invalid && p.accept("[") {
		return p.listValue(t)
	}
	at := p.tok
	v := p.scalar(t.Kind)
	if v == nil {
		p.fail(at, defaultWords(t))
	}
	p.next()
	return Value{v}
}

func (p *parser) listValue(t Type) Value {
	at := p.tok
	elem := Type{Kind: t.Kind.Elem()}
	list := commaList(p, "]", func() any { return p.value(elem).v })
	if t.Len > 0 && len(list) != t.Len {
		p.fail(at, strconv.Itoa(t.Len)+" elements")
	}
	if list == nil {
		list = []any{}
	}
	return Value{list}
}

// scalar returns the value of kind k that the current token has, nil if it has none.
func (p *parser) scalar(k Kind) any {
	text := p.tok.text
	switch k {
	case Int:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case Float:
		if f, err := strconv.ParseFloat(text, 64); err == nil && p.tok.kind == number && !math.IsInf(f, 0) {
			return f
		}
	case Bool:
		if text == "True" || text == "False" {
			return text == "True"
		}
	case Str, Device, DType:
		if p.tok.kind == str {
			return unquote(text)
		}
		if k != Str && p.tok.kind == word && text != "None" {
			return text
		}
	}
	return nil
}

// defaultWords describes the valid defaults of an argument of type t.
func defaultWords(t Type) string {
	words := map[Kind]string{
		Tensor: "no default other than None",
		Int:    "an integer of 64 bits",
		Float:  "a number",
		Bool:   "True or False",
		Str:    "a quoted string",
		Device: "a device such as \"cpu\"",
		DType:  "a type such as float32",
	}[t.Kind]
	if words == "" {
		words = "a list in brackets"
	}
	if t.Optional && t.Kind != Tensor {
		return words + " or None"
	}
	if !t.Optional && t.Kind == Tensor {
		return "no default, since a " + t.String() + " must be given (Tensor? may be None)"
	}
	return words
}

// typeLike returns the type that a word of another language probably means, or "".
func typeLike(got string) string {
	known := map[string]string{
		"tensor": "Tensor", "int64": "int", "int64_t": "int", "int32": "int", "long": "int", "integer": "int",
		"symint": "SymInt", "double": "float", "float32": "float", "float64": "float", "boolean": "bool",
		"string": "str", "dtype": "ScalarType", "scalartype": "ScalarType", "device": "Device",
		"int": "int", "float": "float", "bool": "bool", "str": "str",
	}
	return known[strings.ToLower(got)]
}
