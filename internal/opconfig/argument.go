package opconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/schema"
)

// Argument is the declaration of an argument in the configuration, in addition to its type in the
// schema. The registry checks arguments against it before each call.
type Argument struct {
	Doc string
	// Shape has the shapes that a tensor may have; no alternatives: any shape.
	Shape schema.Shape
	// DTypes are names of element types that a tensor may have, and names of arguments whose element
	// type it may have; empty: any type.
	DTypes []string
	// RowMajor is true for a tensor that must be in row-major order without gaps.
	RowMajor bool
	// Output is true for a tensor of which the operator writes all elements and reads none.
	Output bool
}

// arguments reads an operator's table of arguments. It does nothing if the schema is not valid, because
// that mistake has been reported.
func (d *decoder) arguments(op *Op, n *node) {
	if n == nil || len(op.Schema.Args) == 0 {
		return
	}
	op.Args = map[string]Argument{}
	fields := map[string]func(*node){}
	for _, a := range op.Schema.Args {
		fields[a.Name] = func(n *node) { op.Args[a.Name] = d.argument(op, a, n) }
	}
	d.table(n, "args of "+op.Name+" (its keys are the arguments in the schema)", fields)
}

func (d *decoder) argument(op *Op, a schema.Arg, n *node) (arg Argument) {
	tensorOnly := func(key string, read func(*node)) func(*node) {
		return func(n *node) {
			if a.Type.Kind != schema.Tensor {
				d.fail(n.key, "%s is declared with %s, but its type in the schema is %s; only a Tensor can have %s", a.Name, key, a.Type, key)
				return
			}
			read(n)
		}
	}
	d.table(n, "args."+a.Name, map[string]func(*node){
		"doc":   func(n *node) { arg.Doc = d.text(n, "doc") },
		"shape": tensorOnly("a shape", func(n *node) { arg.Shape = d.shape(n) }),
		"output": tensorOnly("output", func(n *node) {
			d.bool(n, "output")
			if arg.Output, _ = n.value.(bool); arg.Output && !a.Type.Mutable {
				d.fail(n.key, "%s is an output, but the schema does not mark it as written; write it as in Tensor(a!) out", a.Name)
			}
		}),
		"dtype": tensorOnly("a dtype", func(n *node) { d.words(n, "dtype", d.typeOrArgument(op, a, &arg.DTypes)) }),
		"strides": tensorOnly("strides", func(n *node) {
			if word, ok := d.string(n, "strides"); ok && word != "any" && word != "row-major" {
				d.unknown(n.at, fmt.Sprintf("strides %q", word), word, []string{"any", "row-major"})
			} else {
				arg.RowMajor = word == "row-major"
			}
		}),
	})
	return arg
}

func (d *decoder) shape(n *node) schema.Shape {
	text, ok := d.string(n, "shape")
	if !ok {
		return schema.Shape{}
	}
	s, err := schema.ParseShape(text)
	var bad *schema.ShapeError
	if errors.As(err, &bad) {
		d.fail(n.at, "%v", bad)
	}
	return s
}

// typeOrArgument returns a reader that stores names of element types, and of other tensor arguments whose type a may have.
func (d *decoder) typeOrArgument(op *Op, a schema.Arg, to *[]string) func(string, *node) {
	store := d.distinct(to, "type")
	allowed := elementTypes()
	for _, other := range op.Schema.Args {
		if other.Type.Kind == schema.Tensor && other.Name != a.Name {
			allowed = append(allowed, other.Name)
		}
	}
	return func(word string, n *node) {
		if !slices.Contains(allowed, word) {
			d.unknown(n.at, fmt.Sprintf("type %q", word), word, allowed)
			return
		}
		store(word, n)
	}
}

// split reads the axes along which calls may be split: names of sizes in the shapes of the arguments.
func (d *decoder) split(op *Op, n *node) {
	if n == nil {
		return
	}
	var names []string
	for _, a := range op.Schema.Args {
		for _, dims := range op.Args[a.Name].Shape.Alternatives {
			for _, dim := range dims {
				if name := axisName(dim); name != "" && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	d.words(n, "split", func(text string, n *node) {
		axis := strings.Fields(text)
		for _, name := range axis {
			if !slices.Contains(names, name) {
				d.unknown(n.at, fmt.Sprintf("size %q in split", name), name, names)
				return
			}
		}
		if len(axis) == 0 {
			d.fail(n.at, "split has an axis without a name; write names of sizes, such as \"B\" or \"D G\"")
			return
		}
		op.Split = append(op.Split, axis)
	})
}

// axisName returns the name of a size along which calls can be split. It returns "" for a fixed size and for a sum.
func axisName(dim schema.Dim) string {
	switch {
	case dim.Rest:
		return dim.String()
	case dim.Offset != 0:
		return ""
	}
	return dim.Name
}
