package optests

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/tensor"
)

// Case describes one problem. Its own fields apply to operators of every family; Params holds the
// sizes and options of one. Cases can be compared with ==. The zero value of an optional field is
// its default.
type Case struct {
	DType       tensor.DType // activations; default float32
	WeightDType tensor.DType // weight; default DType
	BiasDType   tensor.DType // bias; default WeightDType
	GradDType   tensor.DType // gradients of weight and bias; default WeightDType
	// Slice makes every tensor a slice of a larger buffer: odd strides, pointers
	// aligned to an element only.
	Slice bool
	// NoGuard leaves out the guard bytes around tensors: a storage then ends with the last 16-byte block of its
	// tensor, and a memory checker finds every access outside.
	NoGuard bool
	// Inputs is the placement of the activations that the operator reads, Outputs that of those that it writes.
	Inputs, Outputs Placement
	// Seed determines the random inputs.
	Seed uint64
	// Params is a struct of the operator's family, such as Conv1d.
	Params Params
}

// Placement is where an activation lies in its storage.
type Placement struct {
	Offset int64 // elements between an aligned address and the first element
	RowGap int64 // elements between rows, or between positions in channel-last
}

// Params are the sizes and options of a family: a struct, not a pointer, of comparable fields.
type Params interface {
	// Complete returns the parameters with every default written out. The error is a *CaseError for
	// values that no problem can have.
	Complete() (Params, error)
	// Elements returns the number of activations.
	Elements() int64
	// Words returns the words for the sizes and for the options in a case's name.
	Words() (sizes, options []string)
}

// ParamsOf returns the parameters of a case. It returns the zero P if the case has none, or those of another family.
func ParamsOf[P Params](c Case) P {
	p, _ := c.Params.(P)
	return p
}

// With returns the case with its parameters changed.
func With[P Params](c Case, change func(*P)) Case {
	p := ParamsOf[P](c)
	change(&p)
	c.Params = p
	return c
}

// withDefaults returns the case with every default of its types written out.
func (c Case) withDefaults() Case {
	c.DType = cmp.Or(c.DType, tensor.Float32)
	c.WeightDType = cmp.Or(c.WeightDType, c.DType)
	c.BiasDType = cmp.Or(c.BiasDType, c.WeightDType)
	c.GradDType = cmp.Or(c.GradDType, c.WeightDType)
	return c
}

// Elements returns the number of activations.
func (c Case) Elements() int64 {
	if c.Params == nil {
		return 0
	}
	return c.Params.Elements()
}

// maxElements is the largest number of elements of a case. It keeps products of sizes far from overflow.
const maxElements = 1 << 36

// checkMaxElements refuses a problem of too many elements; sizes names the factors.
func checkMaxElements(sizes string, n float64) error {
	if n > maxElements {
		return &CaseError{Field: sizes, Got: fmt.Sprintf("%.3g", n), Expected: fmt.Sprintf("at most %d", int64(maxElements))}
	}
	return nil
}

// atLeast is a size, and the smallest value that it may have.
type atLeast struct {
	name       string
	value, min int64
}

func checkAtLeast(sizes ...atLeast) error {
	for _, s := range sizes {
		if s.value < s.min {
			return &CaseError{Field: s.name, Got: fmt.Sprint(s.value), Expected: fmt.Sprintf("at least %d", s.min)}
		}
	}
	return nil
}

func (c Case) check() error {
	for _, p := range []Placement{c.Inputs, c.Outputs} {
		if p.Offset < 0 || p.Offset > maxElements {
			return &CaseError{Field: "offset", Got: fmt.Sprint(p.Offset), Expected: fmt.Sprintf("0 to %d", int64(maxElements))}
		}
	}
	for _, f := range []struct {
		name  string
		dtype tensor.DType
	}{{"dtype", c.DType}, {"weight dtype", c.WeightDType}, {"bias dtype", c.BiasDType}, {"gradient dtype", c.GradDType}} {
		if !isFloat(f.dtype) {
			return &CaseError{Field: f.name, Got: f.dtype.String(), Expected: "float32, float16 or bfloat16"}
		}
	}
	return nil
}

// DTypes lists the element types that cases may have.
func DTypes() []tensor.DType {
	return []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
}

func isFloat(d tensor.DType) bool { return slices.Contains(DTypes(), d) }

// String returns a name of the case for tests: sizes, types, options, placement.
func (c Case) String() string {
	if named, ok := c.Params.(fmt.Stringer); ok {
		return named.String() // a case of an [Operator]
	}
	c = c.withDefaults()
	var sizes, options []string
	if c.Params != nil {
		sizes, options = c.Params.Words()
	}
	return strings.Join(append(append(sizes, c.typeWords()...), append(options, c.placementWords()...)...), "_")
}

// typeWords returns the type of the activations and the types that differ from their defaults.
func (c Case) typeWords() []string {
	words := []string{c.DType.String()}
	for _, t := range []struct {
		name            string
		dtype, fallback tensor.DType
	}{{"w", c.WeightDType, c.DType}, {"b", c.BiasDType, c.WeightDType}, {"g", c.GradDType, c.WeightDType}} {
		if t.dtype != t.fallback {
			words = append(words, fmt.Sprintf("%s-%s", t.name, t.dtype))
		}
	}
	return words
}

func (c Case) placementWords() []string {
	var words []string
	if c.Slice {
		words = append(words, "slice")
	}
	return append(append(words, c.Inputs.words("in")...), c.Outputs.words("out")...)
}

// words returns the placement's word in a case's name, none for the zero Placement.
func (p Placement) words(name string) []string {
	if p == (Placement{}) {
		return nil
	}
	return []string{fmt.Sprintf("%s-%d-%d", name, p.Offset, p.RowGap)}
}

// flagWord is a flag with its word in a case's name.
type flagWord struct {
	on   bool
	word string
}

// setWords returns the words of the flags that are set.
func setWords(list ...flagWord) []string {
	var words []string
	for _, o := range list {
		if o.on {
			words = append(words, o.word)
		}
	}
	return words
}
