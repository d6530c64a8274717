package optests

import (
	"github.com/aiter-go/aiter/jit/schema"
)

// Declaration describes an operator to tests and measurements: its cases, and how a case becomes a [Problem]. [Lookup]
// finds the declaration of an operator of this module, [Operator.Declare] makes one for any other operator. The zero
// Declaration has no cases.
type Declaration struct{ op operator }

// Lookup finds the declaration of an operator of this module. The error is an *UnknownOpError.
func Lookup(op string) (Declaration, error) {
	decl, err := lookup(op)
	return Declaration{decl}, err
}

// Declare returns the operator's declaration, with the schema of its module. shapes are the shapes of its tensors by
// argument, as far as the module's configuration declares them: their dimensions name the sizes in reports. The error is
// an *ArgumentError for a case whose arguments do not fit the schema.
func (o Operator) Declare(s schema.Schema, shapes map[string]schema.Shape) (Declaration, error) {
	decl, err := o.declare(s, shapes)
	return Declaration{decl}, err
}

// Name returns the operator's name.
func (d Declaration) Name() string { return d.op.name }

// Listed reports whether the operator has only the cases that its [Operator] lists. Otherwise any sizes and options
// make a case.
func (d Declaration) Listed() bool { return d.op.listed }

// Params lists the sizes and options of the cases.
func (d Declaration) Params() []Param {
	if d.op.family == nil {
		return nil
	}
	return d.op.family().params
}

// IsOption reports whether the operator has an argument of that name that is not a tensor.
func (d Declaration) IsOption(name string) bool {
	for _, a := range d.op.args {
		if a.name == name {
			return a.role == option
		}
	}
	return false
}

// Configs lists the named cases. Those of an operator of this module are small ones that every target runs quickly, then
// the sizes that models use; their types and seeds are the defaults.
func (d Declaration) Configs() []Config { return d.lists().configs }

// Default returns a small case; its sizes replace those that a caller leaves out.
func (d Declaration) Default() Case { return d.lists().defaults }

// Sweep lists cases that show how speed grows with size, from small to large. For an [Operator] it lists the operator's
// cases in their order, without those that move no bytes.
func (d Declaration) Sweep() []Case { return d.lists().sweep }

func (d Declaration) lists() caseLists {
	if d.op.cases == nil {
		return caseLists{}
	}
	return d.op.cases()
}

// Generate is like the function [Generate].
func (d Declaration) Generate(c Case) (*Problem, error) {
	decl, c, err := d.op.prepare(c)
	if err != nil {
		return nil, err
	}
	return decl.build(c, nil)
}

// FromTensors is like the function [FromTensors].
func (d Declaration) FromTensors(given map[string]any) (*Problem, error) {
	return d.op.fromTensors(given)
}
