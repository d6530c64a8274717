package aitercmd

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/jit/schema"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const argsLong = `

Any operator can be called with --in and --arg, also one without a reference:
  --in x=x.npy                     a tensor of a file; FILE.safetensors alone gives all its tensors by name
  --arg x=float16[2,64,512]:normal a random tensor: normal, normal(MEAN,STD), uniform, uniform(LOW,HIGH)
  --arg i=int32[8]:range           0, 1, 2, ...; also zeros and ones
  --arg out=like:x                 a tensor of the type and shape of x; zeros, or like:x:normal
  --arg eps=1e-6                   a number, true, false or a text; none for an optional argument
  --arg sizes=1,2,3                a list of integers
Arguments that are left out have the defaults of the schema (aiterctl describe OP).`

// argSpec is an --arg of a tensor: type, shape and contents.
type argSpec struct {
	dtype tensor.DType
	shape []int64
	like  string // the argument that has the type and shape; "" if they are given
	fill  string // "normal(0,2)"; "" for zeros
}

// parseArgSpec parses "float16[2,64]:normal" and "like:x:zeros".
func parseArgSpec(text string) (s argSpec, err error) {
	if like, ok := strings.CutPrefix(text, "like:"); ok {
		s.like, s.fill, _ = strings.Cut(like, ":")
		return s, nil
	}
	open, end := strings.Index(text, "["), strings.Index(text, "]")
	if open < 0 || end < open {
		return s, usagef("%q: expected TYPE[SIZE,...]:CONTENTS such as float16[2,64,512]:normal, or like:NAME", text)
	}
	if s.dtype, err = tensor.ParseDType(text[:open]); err != nil {
		return s, err
	}
	for _, word := range strings.Split(text[open+1:end], ",") {
		if word = strings.TrimSpace(word); word == "" && end == open+1 {
			break // no dimension
		}
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 {
			return s, usagef("%q: size %q: expected an integer of 0 or more", text, word)
		}
		s.shape = append(s.shape, n)
	}
	rest := text[end+1:]
	if s.fill = strings.TrimPrefix(rest, ":"); rest != "" && (s.fill == "" || s.fill == rest) {
		return s, usagef("%q: expected :CONTENTS after the shape, such as :normal", text)
	}
	return s, nil
}

// filling is the contents of a tensor.
type filling struct {
	kind string
	a, b float64 // mean and deviation, or the bounds
}

// parseFilling parses "uniform(-1,1)".
func parseFilling(text string, dt tensor.DType) (f filling, err error) {
	usual := map[string][2]float64{"": {}, "zeros": {}, "ones": {}, "range": {}, "normal": {0, 1}, "uniform": {0, 1}}
	kind, bounds, given := strings.Cut(text, "(")
	ab, known := usual[kind]
	if !known || given && kind != "normal" && kind != "uniform" {
		return f, usagef("contents %q: expected normal, normal(MEAN,STD), uniform, uniform(LOW,HIGH), zeros, ones or range", text)
	}
	f = filling{kind, ab[0], ab[1]}
	if given {
		first, second, _ := strings.Cut(strings.TrimSuffix(bounds, ")"), ",")
		a, errA := strconv.ParseFloat(strings.TrimSpace(first), 64)
		b, errB := strconv.ParseFloat(strings.TrimSpace(second), 64)
		if errA != nil || errB != nil || !strings.HasSuffix(bounds, ")") {
			return f, usagef("contents %q: expected two numbers, as in %s(0,1)", text, kind)
		}
		f.a, f.b = a, b
	}
	switch {
	case kind == "normal" && !dt.IsFloat():
		return f, usagef("contents %q are for floating-point tensors, and this one is %s; write uniform(LOW,HIGH), range, zeros or ones",
			text, dt)
	case kind == "uniform" && !given && !dt.IsFloat() && dt != tensor.Bool:
		return f, usagef("contents %q need bounds for a tensor of %s: uniform(LOW,HIGH), HIGH excluded", text, dt)
	case kind == "uniform" && !(f.a < f.b):
		return f, usagef("contents %q: expected LOW below HIGH", text)
	}
	return f, nil
}

// values returns n elements. Equal seeds and names give equal values.
func (f filling) values(n int64, dt tensor.DType, seed uint64, name string) []float64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	values := make([]float64, n)
	for i := range values {
		switch f.kind {
		case "ones":
			values[i] = 1
		case "range":
			values[i] = float64(i)
		case "normal":
			values[i] = f.a + f.b*r.NormFloat64()
		case "uniform":
			values[i] = f.a + (f.b-f.a)*r.Float64()
			if dt == tensor.Bool {
				values[i] = float64(r.IntN(2))
			} else if !dt.IsFloat() {
				values[i] = math.Floor(values[i])
			}
		}
	}
	return values
}

// schemaProblem makes the arguments of any operator from --in and --arg. It has a reference with --verify.
func (f *runFlags) schemaProblem(a *app, op *registry.Op) (*optests.Problem, error) {
	given, err := f.readInputs()
	if err != nil {
		return nil, err
	}
	specs, err := f.argSpecs(op.Name(), op.Schema(), given)
	if err != nil {
		return nil, err
	}
	for _, a := range op.Schema().Args { // first those with a shape of their own, then those like another tensor
		if s, ok := specs[a.Name]; ok && s.like == "" {
			if given[a.Name], err = f.makeTensor(a.Name, s); err != nil {
				return nil, err
			}
		}
	}
	for name, s := range specs {
		if s.like == "" {
			continue
		}
		other, ok := given[s.like].(*tensor.Tensor)
		if !ok || specs[s.like].like != "" {
			return nil, usagef("--arg %s=like:%s: %s is not a tensor that --in or --arg gives with its shape", name, s.like, s.like)
		}
		s.dtype, s.shape = other.DType(), other.Shape()
		if given[name], err = f.makeTensor(name, s); err != nil {
			return nil, err
		}
	}
	p, err := positional(op, given)
	if err != nil || !f.verify {
		return p, err
	}
	decl, err := a.declaration(op.Name())
	if err != nil {
		return nil, err
	}
	return decl.FromTensors(given)
}

// readInputs reads the files of --in, by argument name.
func (f *runFlags) readInputs() (map[string]any, error) {
	given := map[string]any{}
	for _, in := range f.in {
		tensors, err := readTensors(in)
		if err != nil {
			return nil, err
		}
		for name, t := range tensors {
			if given[name] != nil {
				return nil, usagef("--in %s: %s is given twice", in, name)
			}
			given[name] = t
		}
	}
	return given, nil
}

// argSpecs parses the --arg flags. It adds scalars to given and returns the tensors to make.
func (f *runFlags) argSpecs(op string, s schema.Schema, given map[string]any) (map[string]argSpec, error) {
	for name := range given {
		if i := s.Index(name); i < 0 || s.Args[i].Type.Kind != schema.Tensor {
			return nil, usagef("--in %s: %s has no tensor of that name: %s", name, op, s)
		}
	}
	specs := map[string]argSpec{}
	for _, text := range f.args {
		name, value, ok := strings.Cut(text, "=")
		i := s.Index(name)
		if !ok || i < 0 {
			return nil, usagef("--arg %q: expected NAME=VALUE with an argument of %s", text, s)
		}
		_, isGiven := given[name]
		if _, isSpec := specs[name]; isGiven || isSpec {
			return nil, usagef("--arg %s: %s is given twice", text, name)
		}
		t := s.Args[i].Type
		var err error
		switch {
		case t.Optional && value == "none":
			given[name] = nil
		case t.Kind == schema.Tensor:
			specs[name], err = parseArgSpec(value)
		default:
			given[name], err = parseScalar(t.Kind, value)
		}
		if err != nil {
			return nil, &usageError{fmt.Errorf("--arg %s: %w", name, err)}
		}
	}
	return specs, nil
}

// parseScalar parses an argument that is not a tensor.
func parseScalar(kind schema.Kind, text string) (value any, err error) {
	switch kind {
	case schema.Bool:
		value, err = strconv.ParseBool(strings.ToLower(text))
	case schema.Int:
		value, err = strconv.ParseInt(text, 0, 64)
	case schema.Float:
		value, err = strconv.ParseFloat(text, 64)
	case schema.Str:
		return text, nil
	case schema.IntList:
		return parseIntList(text)
	default:
		return nil, fmt.Errorf("arguments of type %s cannot be given; leave it out to use its default", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("%q is not a value of type %s", text, kind)
	}
	return value, nil
}

// parseIntList parses "1,2,3", and "" as an empty list.
func parseIntList(text string) (any, error) {
	list := []int64{}
	if text == "" {
		return list, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(word), 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a value of type %s; write integers as 1,2,3", text, schema.IntList)
		}
		list = append(list, n)
	}
	return list, nil
}

// makeTensor allocates and fills a tensor.
func (f *runFlags) makeTensor(name string, s argSpec) (*tensor.Tensor, error) {
	fill, err := parseFilling(s.fill, s.dtype)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--arg %s: %w", name, err)}
	}
	size, err := tensor.ByteSize(s.dtype, s.shape...)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--arg %s: %w", name, err)}
	}
	if fill.kind != "" && fill.kind != "zeros" { // values returns all elements in float64
		const float64Size = 8
		size += min(size/s.dtype.Size(), math.MaxInt64/float64Size-size) * float64Size
	}
	if free := availableMemory().bytes; free > 0 && size > free {
		return nil, usagef("--arg %s needs %s of the host's memory, and %s are available; give smaller sizes", name, formatSize(size),
			formatSize(free))
	}
	t, err := tensor.New(s.dtype, s.shape...)
	if err != nil || fill.kind == "" || fill.kind == "zeros" {
		return t, err
	}
	if err := t.SetFloat64s(fill.values(t.Numel(), s.dtype, f.seed, name)); err != nil {
		return nil, &usageError{fmt.Errorf("--arg %s: %w", name, err)}
	}
	return t, nil
}

// positional puts arguments into the schema's order. Arguments that are not given have their defaults, or are left out at
// the end of the list.
func positional(op *registry.Op, given map[string]any) (*optests.Problem, error) {
	p, s := &optests.Problem{Op: op.Name()}, op.Schema()
	count := s.Required()
	for i, a := range s.Args {
		if _, ok := given[a.Name]; ok {
			count = max(count, i+1)
		}
	}
	for i, a := range s.Args[:count] {
		v, ok := given[a.Name]
		if !ok && a.Default == nil {
			return nil, usagef("%s needs the argument %s (%s); give it with --in or --arg (aiterctl run --help): %s", op.Name(), a.Name, a.Type, s)
		}
		if !ok {
			v = a.Default.Any()
		}
		if t, isTensor := v.(*tensor.Tensor); isTensor && t != nil && a.Type.Mutable {
			p.Outputs = append(p.Outputs, optests.Output{Name: a.Name, Arg: i})
		}
		p.Args, p.ArgNames = append(p.Args, v), append(p.ArgNames, a.Name)
	}
	return p, nil
}

// describeArgs lists the arguments of a call: "x float32[2 3], eps=1e-06".
func describeArgs(p *optests.Problem) string {
	var words []string
	for i, name := range p.ArgNames {
		switch v := p.Args[i].(type) {
		case *tensor.Tensor:
			words = append(words, fmt.Sprintf("%s %s%v", name, v.DType(), v.Shape()))
		case nil:
			words = append(words, name+"=none")
		default:
			words = append(words, fmt.Sprintf("%s=%v", name, v))
		}
	}
	return strings.Join(words, ", ")
}

// bySchema reports whether --in and --arg give the arguments by their names in the schema. That is so for an operator outside
// of aiter's families, and with --arg.
func (f *runFlags) bySchema(a *app, op string) bool {
	return len(f.args) > 0 || a.listed(op) || !slices.Contains(optests.Operators(), op)
}

// checkBySchema refuses flags that need the declaration of an operator.
func (f *runFlags) checkBySchema(a *app, cmd *cobra.Command, op string) error {
	if f.verify && !a.listed(op) {
		return usagef("--verify needs a reference, and this call of %s has none; AITER_VERIFY=1 compares a call on a GPU with the code for "+
			"the CPU", op)
	}
	names := []string{"dtype", "weight_dtype", "slice"}
	for _, p := range f.params {
		names = append(names, p.Name)
	}
	for _, name := range names {
		if cmd.Flags().Changed(name) && a.listed(op) {
			return usagef("--%s is for operators of aiter; select a case of %s with --case, or give its arguments with --in and --arg", name, op)
		}
		if cmd.Flags().Changed(name) {
			return usagef("--%s describes random inputs of a declared operator; give the arguments of %s with --in and --arg", name, op)
		}
	}
	for _, arg := range a.args { // pflag ignores unknown flags without a declared operator
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if arg == "--" {
			break
		}
		if strings.HasPrefix(arg, "--") && cmd.Flags().Lookup(name) == nil {
			return usagef("unknown flag: --%s; arguments of %s are given with --in and --arg (aiterctl describe %s)", name, op, op)
		}
	}
	return nil
}
