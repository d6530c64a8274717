package optests

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/jit/schema"
)

// column is a size or an option of the cases of an [Operator]: a value for each case, nil for none.
type column struct {
	name   string
	kind   Kind
	values []any
}

// columnTable collects the columns of an operator's cases.
type columnTable struct {
	cases int
	list  []*column
}

// set sets the value of a case in a column, unless it has one: a dimension's name stands for one size.
func (t *columnTable) set(i int, name string, kind Kind, value any) {
	at := slices.IndexFunc(t.list, func(c *column) bool { return c.name == name })
	if at < 0 {
		at = len(t.list)
		t.list = append(t.list, &column{name, kind, make([]any, t.cases)})
	}
	if c := t.list[at]; c.values[i] == nil {
		c.values[i] = value
	}
}

// columns returns the sizes and options of each case by name, and declares them. The sizes are the dimensions of the
// tensors, except those that equal an earlier one in all cases. The options are the other arguments that some case gives,
// and Slice. If sizes and options do not distinguish all cases, the case's name is a column too.
func (o Operator) columns(s schema.Schema, shapes map[string]schema.Shape) ([]map[string]any, []Param) {
	t := &columnTable{cases: len(o.Cases)}
	for _, a := range inputsFirst(s) {
		if a.Type.Kind == schema.Tensor {
			o.addSizes(t, a.Name, shapes[a.Name])
		}
	}
	t.dropEqual()
	for _, a := range s.Args {
		if a.Type.Kind != schema.Tensor {
			o.addOptions(t, a)
		}
	}
	for i, c := range o.Cases {
		if slices.ContainsFunc(o.Cases, func(c Call) bool { return c.Slice }) {
			t.set(i, "slice", Bool, c.Slice)
		}
	}
	t.list = t.list[:min(len(t.list), maxColumns)]
	o.addNames(t, s)
	return t.byCase(), t.params()
}

// maxColumns is the largest number of sizes and options. It keeps files of measurements small.
const maxColumns = 30

// addSizes adds the dimensions of a tensor: by the names that the configuration declares, else by their positions. If the
// tensor has several ranks, dimensions without a name are one column, such as 2x64.
func (o Operator) addSizes(t *columnTable, arg string, declared schema.Shape) {
	unnamed := map[int]bool{} // numbers of dimensions without a name
	for _, c := range o.Cases {
		if x, ok := c.Args[arg].(TensorArg); ok {
			unnamed[len(x.Shape)-len(namedDims(declared, len(x.Shape)))] = true
		}
	}
	for i, c := range o.Cases {
		x, ok := c.Args[arg].(TensorArg)
		if !ok {
			continue
		}
		named := namedDims(declared, len(x.Shape))
		rest := x.Shape[:len(x.Shape)-len(named)]
		for d, size := range rest {
			if len(unnamed) == 1 {
				t.set(i, arg+strconv.Itoa(d), Size, size)
			}
		}
		if len(unnamed) > 1 {
			t.set(i, arg, Size, sizeText(rest))
		}
		for d, dim := range named {
			if dim.Name != "" {
				t.set(i, dim.Name, Size, x.Shape[len(rest)+d]-dim.Offset)
			}
		}
	}
}

// namedDims returns the declared last dimensions of a tensor of that rank, none for one whose shape is not declared.
func namedDims(s schema.Shape, rank int) []schema.Dim {
	for _, dims := range s.Alternatives {
		if len(dims) > 0 && dims[0].Rest && len(dims)-1 <= rank {
			return dims[1:]
		}
		if len(dims) == rank {
			return dims
		}
	}
	return nil
}

// sizeText returns a shape as a word: "2x64".
func sizeText(shape []int64) string {
	words := make([]string, len(shape))
	for i, size := range shape {
		words[i] = strconv.FormatInt(size, 10)
	}
	if len(words) == 0 {
		return "scalar"
	}
	return strings.Join(words, "x")
}

// dropEqual drops columns that equal an earlier one in all cases.
func (t *columnTable) dropEqual() {
	var list []*column
	for _, c := range t.list {
		if !slices.ContainsFunc(list, func(x *column) bool { return slices.Equal(x.values, c.values) }) {
			list = append(list, c)
		}
	}
	t.list = list
}

// addOptions adds an argument that is not a tensor, if some case gives it. Other cases have its default.
func (o Operator) addOptions(t *columnTable, a schema.Arg) {
	if !slices.ContainsFunc(o.Cases, func(c Call) bool { return c.Args[a.Name] != nil }) {
		return
	}
	for i, c := range o.Cases {
		v, given := c.Args[a.Name]
		if !given && a.Default != nil {
			v = a.Default.Any()
		}
		if v, kind := plainValue(v); v != nil {
			t.set(i, a.Name, kind, v)
		}
	}
}

// plainValue returns a value as reports show it: an int64, a float64, a bool, or a string for everything else.
func plainValue(v any) (any, Kind) {
	r := reflect.ValueOf(v)
	switch {
	case v == nil:
		return nil, Size
	case r.CanInt():
		return r.Int(), Int
	case r.CanFloat():
		return r.Float(), Float
	case r.Kind() == reflect.Bool:
		return r.Bool(), Bool
	}
	return fmt.Sprint(v), Choice
}

// addNames adds the names of the cases if type, sizes and options do not distinguish them.
func (o Operator) addNames(t *columnTable, s schema.Schema) {
	seen, clash := map[string]bool{}, false
	for i, c := range o.Cases {
		key := caseOf(s, c).DType.String()
		for _, x := range t.list {
			key += fmt.Sprintf(" %v", x.values[i])
		}
		clash = clash || seen[key]
		seen[key] = true
	}
	if !clash {
		return
	}
	names, used := &column{"case", Size, make([]any, len(o.Cases))}, map[string]int{}
	for i, c := range o.Cases {
		name := c.String()
		if used[name]++; used[name] > 1 {
			name = fmt.Sprintf("%s#%d", name, used[name])
		}
		names.values[i] = name
	}
	t.list = append([]*column{names}, t.list...)
}

// byCase returns the values of each case by column.
func (t *columnTable) byCase() []map[string]any {
	values := make([]map[string]any, t.cases)
	for i := range values {
		values[i] = map[string]any{}
		for _, c := range t.list {
			values[i][c.name] = c.values[i]
		}
	}
	return values
}

// reservedColumns returns the keys that reports have besides sizes and options.
func reservedColumns() []string {
	return []string{
		"op", "target", "config", "dtype", "status", "outputs", "performance", "error",
		"median_us", "p20_us", "p80_us", "gbps", "copy_fraction", "gflops", "vector_fraction", "matrix_fraction",
	}
}

// params declares the columns. A name that is a reserved key gets an underscore. The values cannot be set: the operator
// lists its cases.
func (t *columnTable) params() []Param {
	var list []Param
	for _, c := range t.list {
		p := Param{
			Name: c.name, Usage: c.name, Kind: c.kind, Column: c.name, Title: strings.ToUpper(c.name[:1]) + c.name[1:],
			get: func(of Case) any {
				if call, ok := of.Params.(callParams); ok && call.listed != nil {
					return call.listed.values[c.name]
				}
				return nil
			},
			set: func(of Case, _ any) (Case, bool) { return of, false },
		}
		if slices.Contains(reservedColumns(), strings.ToLower(c.name)) {
			p.Column += "_"
		}
		for _, v := range c.values {
			if word, ok := v.(string); ok && c.kind == Choice && !slices.Contains(p.Choices, word) {
				p.Choices = append(p.Choices, word)
			}
		}
		list = append(list, p)
	}
	return list
}
