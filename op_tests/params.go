package optests

import (
	"fmt"
	"strings"
)

// family declares what the operators of a family have in common: the parameters of their cases.
type family struct {
	zero   Params // parameters for a case that has none
	params []Param
}

// Kind is the kind of a parameter's values.
type Kind int

const (
	// Size is an int64 in which the named configurations differ. Given sizes replace those of a configuration.
	Size Kind = iota
	// Int is an int64, Float a float64, that any configuration may have.
	Int
	Float
	// Choice is one of [Param].Choices, all of which are usually tested.
	Choice
	// Bool is an option that is off by default.
	Bool
)

// Param declares a size or an option of a family. The commands derive their flags, and the columns of their reports,
// from it.
type Param struct {
	Name    string // the flag
	Usage   string // the flag's help
	Kind    Kind
	Choices []string // of a Choice, the default first
	Column  string   // the key in JSON and CSV, usually Name
	Title   string   // the column's name on a page
	Untimed bool     // measurements do not have this column
	Default string   // what an Int of 0, or a Bool that is off, stands for, such as another parameter's name; Cell is then nil

	negated bool // the column shows the opposite of a Bool
	get     func(Case) any
	set     func(c Case, value any) (Case, bool)
}

// Value returns a case's value of the parameter: an int64, a float64, a string or a bool, by its kind.
func (p Param) Value(c Case) any { return p.get(c) }

// Cell returns the value that the parameter's column shows for a case, nil for a value that stands for its default.
func (p Param) Cell(c Case) any {
	v := p.get(c)
	if p.Default != "" && (v == int64(0) || v == false) {
		return nil
	}
	if on, ok := v.(bool); ok && p.negated {
		return !on
	}
	return v
}

// Set returns the case with another value of the parameter. The error is a *CaseError for a value that it cannot have.
func (p Param) Set(c Case, value any) (Case, error) {
	changed, ok := p.set(c, value)
	if !ok {
		expected := map[Kind]string{Size: "an int64", Int: "an int64", Float: "a float64", Bool: "a bool",
			Choice: strings.Join(p.Choices, " or ")}
		return c, &CaseError{Field: p.Name, Got: fmt.Sprint(value), Expected: expected[p.Kind]}
	}
	return changed, nil
}

// newParam declares a parameter that is a field of P.
func newParam[P Params, V any](kind Kind, name, usage string, field func(*P) *V) Param {
	return Param{
		Name: name, Usage: usage, Kind: kind, Column: name, Title: strings.ToUpper(name[:1]) + name[1:],
		get: func(c Case) any {
			p := ParamsOf[P](c)
			return *field(&p)
		},
		set: func(c Case, value any) (Case, bool) {
			v, ok := value.(V)
			return With(c, func(p *P) { *field(p) = v }), ok
		},
	}
}

func sizeParam[P Params](name, usage string, field func(*P) *int64) Param {
	return newParam(Size, name, usage, field)
}

func intParam[P Params](name, usage string, field func(*P) *int64) Param {
	return newParam(Int, name, usage, field)
}

func floatParam[P Params](name, usage string, field func(*P) *float64) Param {
	return newParam(Float, name, usage, field)
}

func boolParam[P Params](name, usage string, field func(*P) *bool) Param {
	return newParam(Bool, name, usage, field)
}

// choiceParam declares a parameter whose values are named by String. The first is the default.
func choiceParam[P Params, V fmt.Stringer](name, usage string, field func(*P) *V, values ...V) Param {
	p := newParam(Choice, name, usage, field)
	get, set, byName := p.get, p.set, map[string]V{}
	for _, v := range values {
		p.Choices = append(p.Choices, v.String())
		byName[v.String()] = v
	}
	p.get = func(c Case) any { return fmt.Sprint(get(c)) }
	p.set = func(c Case, value any) (Case, bool) {
		word, _ := value.(string)
		v, ok := byName[word]
		if !ok {
			return c, false
		}
		return set(c, v)
	}
	return p
}

// complete gives the case the parameters of the family if it has none, and writes their defaults out. The error is a
// *CaseError.
func (f family) complete(c *Case) (err error) {
	if c.Params == nil {
		c.Params = f.zero
	}
	if got, want := fmt.Sprintf("%T", c.Params), fmt.Sprintf("%T", f.zero); got != want {
		return &CaseError{Field: "parameters", Got: got, Expected: want}
	}
	c.Params, err = c.Params.Complete()
	return err
}
