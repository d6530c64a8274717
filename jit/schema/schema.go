// Package schema reads and writes the signatures of operators in PyTorch's
// function-schema language:
//
//	(Tensor(a!) out, Tensor x, Tensor? bias=None, bool use_silu=False) -> ()
//
// Calls are positional, so keyword-only arguments ("*") and a required argument
// after one with a default are errors.
package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// Schema is the signature of one operator: its arguments and the types of its results.
type Schema struct {
	Name    string // "", "causal_conv1d_fwd", or qualified: "aten::add.out"
	Args    []Arg  // in the order of the call
	Returns []Type // empty for "()"
}

// Arg is one argument.
type Arg struct {
	Name    string // C identifier, unique within the schema
	Type    Type
	Default *Value // nil: the argument must be given
}

// Type is the type of an argument or of a returned value.
type Type struct {
	Kind     Kind
	Len      int    // of a list with a fixed length, as in int[2]; else 0
	Optional bool   // "?": None is allowed
	Alias    string // alias set of a tensor, "a" in Tensor(a!)
	Mutable  bool   // "!": the operator writes to the tensor
}

// Kind is the type of a value without its optional and alias marks.
type Kind uint8

// The kinds of values. A list's elements are never optional.
const (
	Invalid Kind = iota
	Tensor
	Int   // int64; SymInt is read as Int
	Float // float64
	Bool
	Str
	Device // "cpu", "cuda:0", "rocm:1"
	DType  // written ScalarType
	TensorList
	IntList
	FloatList
	BoolList
	StrList
)

// String returns the word of the schema language: "Tensor", "int", "int[]".
func (k Kind) String() string {
	names := [...]string{
		"invalid", "Tensor", "int", "float", "bool", "str", "Device", "ScalarType",
		"Tensor[]", "int[]", "float[]", "bool[]", "str[]",
	}
	if int(k) >= len(names) {
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
	return names[k]
}

// Elem returns the kind of a list's elements, Invalid if k is not a list.
func (k Kind) Elem() Kind {
	switch k {
	case TensorList:
		return Tensor
	case IntList:
		return Int
	case FloatList:
		return Float
	case BoolList:
		return Bool
	case StrList:
		return Str
	}
	return Invalid
}

func (k Kind) list() Kind {
	for l := TensorList; l <= StrList; l++ {
		if l.Elem() == k {
			return l
		}
	}
	return Invalid
}

// Required returns the number of leading arguments that a call must give.
func (s Schema) Required() int {
	for i, a := range s.Args {
		if a.Default != nil {
			return i
		}
	}
	return len(s.Args)
}

// Index returns the position of the argument called name, -1 if there is none.
func (s Schema) Index(name string) int {
	for i, a := range s.Args {
		if a.Name == name {
			return i
		}
	}
	return -1
}

// String returns the schema in canonical form. Parse reads it back as the same
// Schema.
func (s Schema) String() string {
	args := make([]string, len(s.Args))
	for i, a := range s.Args {
		args[i] = a.String()
	}
	return s.Name + "(" + strings.Join(args, ", ") + ") -> " + Results(s.Returns)
}

// Result returns the kind of the operator's result if that is one int, bool or float, else Invalid.
func (s Schema) Result() Kind {
	if len(s.Returns) != 1 || s.Returns[0].Optional {
		return Invalid
	}
	switch k := s.Returns[0].Kind; k {
	case Int, Bool, Float:
		return k
	}
	return Invalid
}

// Results returns the types of an operator's results as written in a schema: "int", or "()" for none.
func Results(types []Type) string {
	returns := make([]string, len(types))
	for i, t := range types {
		returns[i] = t.String()
	}
	result := strings.Join(returns, ", ")
	if len(returns) != 1 {
		result = "(" + result + ")"
	}
	return result
}

// String returns the argument as written in a schema: "Tensor? bias=None".
func (a Arg) String() string {
	s := a.Type.String() + " " + a.Name
	if a.Default != nil {
		s += "=" + a.Default.String()
	}
	return s
}

// String returns the type as written in a schema: "Tensor(a!)?", "int[2]".
func (t Type) String() string {
	s := t.Kind.String()
	if t.Len > 0 {
		s = strings.TrimSuffix(s, "]") + strconv.Itoa(t.Len) + "]"
	}
	if t.Alias != "" {
		s += "(" + t.Alias
		if t.Mutable {
			s += "!"
		}
		s += ")"
	}
	if t.Optional {
		s += "?"
	}
	return s
}

// SyntaxError reports the first position at which a schema is not valid.
type SyntaxError struct {
	Input    string // the whole schema
	Offset   int    // of Got in Input, in bytes
	Expected string // description of the valid tokens
	Got      string // description of the token

	Suggestion string // the word that was probably meant, or ""
}

func (e *SyntaxError) Error() string {
	s := fmt.Sprintf("schema %q: at offset %d: expected %s, got %s", e.Input, e.Offset, e.Expected, e.Got)
	if e.Suggestion != "" {
		s += fmt.Sprintf("; did you mean %q?", e.Suggestion)
	}
	return s
}
