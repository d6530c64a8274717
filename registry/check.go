package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// argChecks are the shapes, element types and strides that the configuration declares for the
// arguments of an operator. A check allocates nothing unless it fails.
type argChecks struct {
	names   []string
	unknown []int64 // unknownSize for each name
	args    []argCheck
}

// argCheck is the check of one tensor argument.
type argCheck struct {
	position int
	shapes   [][]dimCheck // allowed shapes; empty: any shape
	declared schema.Shape
	types    []tensor.DType
	like     []int // positions of the arguments whose element type is allowed
	rowMajor bool
}

// dimCheck is one dimension of a shape: "...", a fixed size, or the size of a name plus an offset.
type dimCheck struct {
	rest   bool  // "...": any number of leading dimensions
	name   int   // index in argChecks.names, -1 for a fixed size
	offset int64 // the fixed size, or the number that is added to the size of the name
}

// newArgChecks returns the checks of an operator, nil if there are none.
func newArgChecks(op *opconfig.Op) *argChecks {
	c := new(argChecks)
	position := func(name string) int {
		return slices.IndexFunc(op.Schema.Args, func(a schema.Arg) bool { return a.Name == name })
	}
	for i, a := range op.Schema.Args {
		decl, ok := op.Args[a.Name]
		if !ok || a.Type.Kind != schema.Tensor {
			continue
		}
		check := argCheck{position: i, declared: decl.Shape, rowMajor: decl.RowMajor}
		for _, dims := range decl.Shape.Alternatives {
			check.shapes = append(check.shapes, c.dims(dims))
		}
		for _, word := range decl.DTypes {
			if at := position(word); at >= 0 {
				check.like = append(check.like, at)
			} else if dt, err := tensor.ParseDType(word); err == nil {
				check.types = append(check.types, dt)
			}
		}
		if len(check.shapes)+len(check.types)+len(check.like) > 0 || check.rowMajor {
			c.args = append(c.args, check)
		}
	}
	if len(c.args) == 0 {
		return nil
	}
	c.unknown = slices.Repeat([]int64{unknownSize}, len(c.names))
	// Inputs are checked first, because they determine the sizes and types: an error then names a wrong output.
	slices.SortStableFunc(c.args, func(a, b argCheck) int {
		written := func(c argCheck) int {
			if op.Schema.Args[c.position].Type.Mutable {
				return 1
			}
			return 0
		}
		return written(a) - written(b)
	})
	return c
}

func (c *argChecks) dims(dims []schema.Dim) []dimCheck {
	list := []dimCheck{}
	for _, d := range dims {
		check := dimCheck{rest: d.Rest, name: -1, offset: d.Offset}
		if d.Name != "" {
			if check.name = slices.Index(c.names, d.Name); check.name < 0 {
				check.name = len(c.names)
				c.names = append(c.names, d.Name)
			}
		}
		list = append(list, check)
	}
	return list
}

// unknownSize is the size of a name that no argument of a call determines.
const unknownSize = -1

// sizes has the sizes that names of dimensions have in one call.
type sizes struct {
	value []int64        // by the index of the name in argChecks.names; unknownSize for none
	rest  *tensor.Tensor // the first tensor whose shape begins with "...", nil for none
	lead  int            // the number of its dimensions that "..." stands for
}

// check returns an *ArgumentError for an argument that the configuration does not allow. memory is reused for the sizes of names.
func (c *argChecks) check(op string, decl []schema.Arg, args []any, memory *[]int64) error {
	if c == nil {
		return nil
	}
	s := c.sizes(args, memory)
	for i := range c.args {
		a := &c.args[i]
		t := tensorAt(args, a.position)
		if t == nil {
			continue
		}
		name := decl[a.position].Name
		switch {
		case !a.allowsShape(t, &s):
			return &ArgumentError{op, name, "shape", a.declared.String() + c.values(a, s), shapeText(t.Shape())}
		case !a.allowsType(t, args):
			a, t = c.wrongType(a, t, args)
			return &ArgumentError{op, decl[a.position].Name, "dtype", a.typeText(decl, args), t.DType().String()}
		case a.rowMajor && !t.Contiguous():
			return &ArgumentError{op, name, "strides", "of row-major order without gaps", fmt.Sprint(t.Strides())}
		}
	}
	return nil
}

// wrongType returns the argument to report for the wrong element type of a. It is a, or an argument whose type a must have, if the
// type of that argument is wrong too.
func (c *argChecks) wrongType(a *argCheck, t *tensor.Tensor, args []any) (*argCheck, *tensor.Tensor) {
	for i := range c.args {
		b := &c.args[i]
		if other := tensorAt(args, b.position); other != nil && slices.Contains(a.like, b.position) && !b.allowsType(other, args) {
			return b, other
		}
	}
	return a, t
}

// sizes returns the sizes of names in a call. It stores them in memory, which it enlarges if necessary.
func (c *argChecks) sizes(args []any, memory *[]int64) (s sizes) {
	*memory = append((*memory)[:0], c.unknown...)
	s.value = *memory
	for i := range c.args {
		if t := tensorAt(args, c.args[i].position); t != nil {
			c.args[i].bind(t, &s)
		}
	}
	return s
}

// tensorAt returns the tensor at a position, nil for none.
func tensorAt(args []any, i int) *tensor.Tensor {
	if i >= len(args) {
		return nil
	}
	t, _ := args[i].(*tensor.Tensor)
	return t
}

// fits reports whether a shape has the tensor's rank. It returns the dimensions after "...", and the
// number of those that "..." stands for.
func fits(shape []dimCheck, t *tensor.Tensor) (dims []dimCheck, lead int, ok bool) {
	if len(shape) > 0 && shape[0].rest {
		lead = t.Rank() - len(shape) + 1
		return shape[1:], lead, lead >= 0
	}
	return shape, 0, len(shape) == t.Rank()
}

// bind records the sizes of names that are still unknown from a tensor. It records none unless exactly one of the allowed shapes has
// the rank of the tensor.
func (a *argCheck) bind(t *tensor.Tensor, s *sizes) {
	var shape []dimCheck
	for _, other := range a.shapes {
		if _, _, ok := fits(other, t); ok && shape != nil {
			return
		} else if ok {
			shape = other
		}
	}
	if shape == nil {
		return
	}
	dims, lead, _ := fits(shape, t)
	for i, d := range dims {
		if d.name >= 0 && d.offset == 0 && s.value[d.name] == unknownSize {
			s.value[d.name] = t.Dim(lead + i)
		}
	}
	if s.rest == nil && len(shape) > len(dims) {
		s.rest, s.lead = t, lead
	}
}

func (a *argCheck) allowsShape(t *tensor.Tensor, s *sizes) bool {
	for _, shape := range a.shapes {
		if s.allows(shape, t) {
			return true
		}
	}
	return len(a.shapes) == 0
}

func (s *sizes) allows(shape []dimCheck, t *tensor.Tensor) bool {
	dims, lead, ok := fits(shape, t)
	if !ok {
		return false
	}
	for i, d := range dims {
		want := d.offset
		if d.name >= 0 {
			if s.value[d.name] == unknownSize {
				continue // no argument of this call determines the size of the name
			}
			want += s.value[d.name]
		}
		if t.Dim(lead+i) != want {
			return false
		}
	}
	if len(shape) == len(dims) {
		return true
	}
	for i := range min(lead, s.lead) {
		if t.Dim(i) != s.rest.Dim(i) {
			return false
		}
	}
	return lead == s.lead
}

// values returns the sizes that an argument's names have: " with B = 2, D = 64".
func (c *argChecks) values(a *argCheck, s sizes) string {
	var words []string
	for _, dims := range a.shapes {
		for _, d := range dims {
			if d.rest && s.rest != nil {
				words = append(words, "... = "+shapeText(s.rest.Shape()[:s.lead]))
			}
			if d.name < 0 || s.value[d.name] == unknownSize {
				continue
			}
			if word := fmt.Sprintf("%s = %d", c.names[d.name], s.value[d.name]); !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " with " + strings.Join(words, ", ")
}

func (a *argCheck) allowsType(t *tensor.Tensor, args []any) bool {
	if len(a.types)+len(a.like) == 0 || slices.Contains(a.types, t.DType()) {
		return true
	}
	for _, i := range a.like {
		if other := tensorAt(args, i); other != nil && other.DType() == t.DType() {
			return true
		}
	}
	return false
}

// typeText lists the allowed element types: "float32 or bfloat16 as 'x'".
func (a *argCheck) typeText(decl []schema.Arg, args []any) string {
	var words []string
	for _, dt := range a.types {
		words = append(words, dt.String())
	}
	for _, i := range a.like {
		if other := tensorAt(args, i); other != nil && !slices.Contains(a.types, other.DType()) {
			words = append(words, fmt.Sprintf("%s as '%s'", other.DType(), decl[i].Name))
		}
	}
	return spelling.OneOf(words)
}

// shapeText returns a shape as "(2, 64)".
func shapeText(shape []int64) string {
	words := make([]string, len(shape))
	for i, n := range shape {
		words[i] = fmt.Sprint(n)
	}
	return "(" + strings.Join(words, ", ") + ")"
}
