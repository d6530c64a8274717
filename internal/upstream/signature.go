package upstream

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/jit/schema"
)

// Function is a function of an AIter module.
type Function struct {
	Name   string
	ABI    ABI
	Result string // C++ type
	Status bool   // the result reports whether the call succeeded; it is not a result of the operator
	Params []Param
}

// Param is a parameter of a function.
type Param struct {
	Name    string
	Type    string        // C++ type: "const aiter_tensor_t &"
	Enum    bool          // the type is an enum
	Default *schema.Value // nil: none
}

// Types returns the function's C++ type: "void (const aiter_tensor_t &, float)".
func (f Function) Types() string {
	var types []string
	for _, p := range f.Params {
		types = append(types, p.Type)
	}
	return f.Result + " (" + strings.Join(types, ", ") + ")"
}

// Schema returns the signature as a schema. The schema does not mark written tensors, because AIter's types do not show them, and it
// leaves out the stream of a ctypes function. The error names an argument whose type schemas do not have.
func (f Function) Schema() (schema.Schema, error) {
	s := schema.Schema{}
	for i, p := range f.Params {
		if f.ABI == CTypes && i == len(f.Params)-1 && p.Type == "hipStream_t" {
			break
		}
		t, err := schemaType(p.Type, p.Enum)
		if err != nil {
			return s, fmt.Errorf("argument %s: %w", p.Name, err)
		}
		a := schema.Arg{Name: p.Name, Type: t}
		if p.Default != nil {
			v := *p.Default
			if n, ok := v.Any().(int64); ok && t.Kind == schema.Float {
				v = schema.ValueOf(float64(n))
			}
			a.Default = &v
		}
		s.Args = append(s.Args, a)
	}
	// Calls are positional: a default counts if all later arguments have one.
	for i := len(s.Args) - 1; i > 0; i-- {
		if s.Args[i].Default == nil {
			s.Args[i-1].Default = nil
		}
	}
	if f.Result != "void" && !f.Status {
		t, err := schemaType(f.Result, false)
		if err != nil {
			return s, fmt.Errorf("result: %w", err)
		}
		s.Returns = []schema.Type{t}
	}
	return s, nil
}

// schemaType returns the type in a schema for a C++ type. enum tells that the C++ type is an enum.
func schemaType(c string, enum bool) (schema.Type, error) {
	plain := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(c), "const "), "&"))
	if inner, ok := template(plain, "std::optional"); ok {
		t, err := schemaType(inner, enum)
		t.Optional = true
		return t, err
	}
	if inner, ok := template(plain, "std::vector"); ok {
		t, err := schemaType(inner, false)
		list := map[schema.Kind]schema.Kind{schema.Tensor: schema.TensorList, schema.Int: schema.IntList, schema.Float: schema.FloatList,
			schema.Bool: schema.BoolList, schema.Str: schema.StrList}
		kind, known := list[t.Kind]
		if err == nil && (!known || t.Optional) {
			err = fmt.Errorf("schemas have no type for %s", c)
		}
		return schema.Type{Kind: kind}, err
	}
	if enum {
		return schema.Type{Kind: schema.Int}, nil
	}
	switch plain {
	case "aiter_tensor_t":
		return schema.Type{Kind: schema.Tensor}, nil
	case "aiter_tensor_t *":
		return schema.Type{Kind: schema.Tensor, Optional: true}, nil
	case "bool":
		return schema.Type{Kind: schema.Bool}, nil
	case "float", "double":
		return schema.Type{Kind: schema.Float}, nil
	case "std::basic_string<char>", "std::string", "std::string_view":
		return schema.Type{Kind: schema.Str}, nil
	case "char *": // const char *
		return schema.Type{Kind: schema.Str, Optional: true}, nil
	case "int", "long", "unsigned int", "unsigned long", "short", "unsigned short", "signed char", "unsigned char", "long long",
		"unsigned long long", "int64_t", "uint64_t", "int32_t", "uint32_t", "int16_t", "uint16_t", "int8_t", "uint8_t", "size_t", "unsigned",
		"uintptr_t", "intptr_t":
		return schema.Type{Kind: schema.Int}, nil
	}
	return schema.Type{}, fmt.Errorf("schemas have no type for %s", c)
}

// template returns the argument of name<argument>.
func template(c, name string) (string, bool) {
	inner, ok := strings.CutPrefix(c, name+"<")
	if !ok || !strings.HasSuffix(inner, ">") {
		return "", false
	}
	return strings.TrimSpace(inner[:len(inner)-1]), true
}

// The separators of the table of bindings; see csrc/upstream/bindings/pybind11/pybind11.h.
const (
	fieldMark   = "\x1f"
	defaultMark = "\x1e"
)

// readTable returns the functions in a table of bindings. It leaves out AIter's function that sets the stream.
func readTable(table string) ([]Function, error) {
	var list []Function
	for line := range strings.Lines(table) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), fieldMark)
		if len(fields) < 3 || fields[0] == "" {
			return nil, fmt.Errorf("the table of bindings has the line %q", line)
		}
		if fields[0] == "_set_current_hip_stream" {
			continue
		}
		f, err := readBinding(fields)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fields[0], err)
		}
		list = append(list, f)
	}
	return list, nil
}

// readBinding reads the fields of a function: its name, its C++ type, a letter for each argument (e for an enum), and the py::args.
func readBinding(fields []string) (Function, error) {
	f := Function{Name: fields[0], ABI: Tensors}
	_, pretty, _ := strings.Cut(fields[1], "[F = ")
	result, params, ok := strings.Cut(strings.TrimSuffix(pretty, "]"), " (*)(")
	if !ok || !strings.HasSuffix(params, ")") {
		return f, fmt.Errorf("%q is not the type of a function", fields[1])
	}
	f.Result = result
	types := splitArgs(params[:len(params)-1])
	if len(types) != len(fields[2]) {
		return f, fmt.Errorf("%d types for %d arguments", len(types), len(fields[2]))
	}
	given := fields[3:]
	if len(given) > 0 && len(given) != len(types) {
		return f, fmt.Errorf("%d names for %d arguments", len(given), len(types))
	}
	for i, t := range types {
		p := Param{Type: t, Enum: fields[2][i] == 'e'}
		if len(given) > 0 {
			name, value, hasDefault := strings.Cut(given[i], defaultMark)
			p.Name = name
			if hasDefault {
				v, err := readDefault(value)
				if err != nil {
					return f, fmt.Errorf("argument %s: %w", name, err)
				}
				p.Default = &v
			}
		}
		f.Params = append(f.Params, p)
	}
	return f, nil
}

// splitArgs splits at the commas outside of brackets.
func splitArgs(s string) []string {
	var list []string
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(', '<', '[', '{':
			depth++
		case ')', '>', ']', '}':
			depth--
		case ',':
			if depth == 0 {
				list = append(list, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	if last := strings.TrimSpace(s[start:]); last != "" || len(list) > 0 {
		list = append(list, last)
	}
	return list
}

// readDefault reads a default of the table: a letter for its type, then the value.
func readDefault(s string) (schema.Value, error) {
	bad := fmt.Errorf("schemas have no default %q", s)
	if s == "" {
		return schema.Value{}, bad
	}
	text := s[1:]
	switch s[0] {
	case 'n':
		return schema.None(), nil
	case 's':
		return schema.ValueOf(text), nil
	case 'b':
		return schema.ValueOf(text == "1"), nil
	case 'i':
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return schema.ValueOf(n), nil
		}
	case 'f':
		if n, err := strconv.ParseUint(text, 16, 32); err == nil {
			return schema.ValueOf(shortest(math.Float32frombits(uint32(n)))), nil
		}
	case 'd':
		if n, err := strconv.ParseUint(text, 16, 64); err == nil {
			return schema.ValueOf(math.Float64frombits(n)), nil
		}
	}
	return schema.Value{}, bad
}

// shortest returns the float64 with the decimal digits that identify a float32.
func shortest(x float32) float64 {
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil {
		return float64(x) // an infinity, or NaN
	}
	return f
}
