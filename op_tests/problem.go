package optests

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/aiter-go/aiter/tensor"
)

// Problem is one call: its arguments on the host and the expected outputs. Only one
// run at a time may use it.
type Problem struct {
	Op   string
	Case Case
	// Args are in the schema's order: *tensor.Tensor, bool, int64, or nil for an
	// optional argument that is not passed.
	Args     []any
	ArgNames []string
	Outputs  []Output

	decl      operator
	reference func() (map[string][]float64, error)
}

// Output is an argument that the operator writes.
type Output struct {
	Name string
	Arg  int // index into Args

	tolerance tolerances
	guarded   bool // the problem allocated the storage, with canary bytes around the tensor
	poisoned  bool // the elements were filled with the poison
	pure      bool // the operator does not read it
}

// Pure reports whether the operator writes the argument without reading it, unlike a state.
func (o Output) Pure() bool { return o.pure }

// Generate makes a problem of the case: random inputs rounded to their types,
// poisoned outputs, canaries around each output. Equal cases give equal problems.
// The error is an *UnknownOpError or a *CaseError.
func Generate(op string, c Case) (*Problem, error) {
	d, err := Lookup(op)
	if err != nil {
		return nil, err
	}
	return d.Generate(c)
}

// prepare checks the case and writes its defaults out. It returns the declaration with the arguments of the case.
func (op operator) prepare(c Case) (operator, Case, error) {
	c, err := op.complete(c)
	if err != nil {
		return op, c, err
	}
	if op.adapt != nil {
		c = op.adapt(c)
	}
	if op.resolve != nil {
		op, err = op.resolve(c)
	}
	return op, c, err
}

// complete writes the case's defaults out and checks it.
func (op operator) complete(c Case) (Case, error) {
	c = c.withDefaults()
	err := op.family().complete(&c)
	if err == nil && !op.listed {
		err = c.check()
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", op.name, err)
	}
	return c, nil
}

// Wanted, given to FromTensors in place of a tensor, requests an optional output, which FromTensors allocates.
type Wanted struct{}

// FromTensors makes a problem of arguments given by name: host tensors, bool,
// int64. Missing options have their defaults. It allocates the missing outputs that
// the inputs require and those given as Wanted, poisoned and with canary bytes around
// them. The error is an *UnknownOpError, a *CaseError or an *ArgumentError.
func FromTensors(op string, given map[string]any) (*Problem, error) {
	d, err := Lookup(op)
	if err != nil {
		return nil, err
	}
	return d.FromTensors(given)
}

func (op operator) fromTensors(given args) (*Problem, error) {
	if op.resolve == nil { // else infer compares the names with the schema
		if err := op.checkNames(given); err != nil {
			return nil, err
		}
	}
	c, err := op.infer(given)
	if err != nil {
		return nil, op.named(err)
	}
	if c, err = op.complete(c); err != nil {
		return nil, err
	}
	if op.resolve != nil {
		if op, err = op.resolve(c); err != nil {
			return nil, err
		}
	}
	return op.build(c, given)
}

// build uses the given arguments and makes the others; given is nil for random inputs.
func (op operator) build(c Case, given args) (*Problem, error) {
	p := &Problem{Op: op.name, Case: c, decl: op}
	for i, a := range op.args {
		v, made, err := a.supply(c, given)
		if err != nil {
			return nil, op.named(err)
		}
		p.Args, p.ArgNames = append(p.Args, v), append(p.ArgNames, a.name)
		if v != nil && a.written() {
			p.Outputs = append(p.Outputs, Output{
				Name: a.name, Arg: i, tolerance: a.tolerance, guarded: made, poisoned: made && a.role == output,
				pure: a.role == output,
			})
		}
	}
	return p, p.captureInputs()
}

// supply returns the argument's value. made reports whether it is a new tensor, not a given one.
func (a argument) supply(c Case, given args) (value any, made bool, err error) {
	asked := given[a.name] == any(Wanted{})
	switch {
	case a.role == option:
		return a.value(c), false, nil
	case given.has(a.name) && !asked:
		return given[a.name], false, a.fits(c, given.tensor(a.name))
	case !asked && !a.isPassed(c):
		return nil, false, nil
	case given != nil && a.role != output:
		return nil, false, &ArgumentError{Arg: a.name, Expected: a.describe(c), Got: "none"}
	}
	t, err := a.generate(c)
	if err != nil {
		return nil, true, fmt.Errorf("argument %s: %w", a.name, err)
	}
	return t, true, nil
}

// generate makes a tensor for the argument: random, or poisoned.
func (a argument) generate(c Case) (*tensor.Tensor, error) {
	p := a.storageLayout(c)
	t, err := p.allocate(a.surroundingFill(p.dtype))
	if err != nil {
		return nil, err
	}
	if a.role == output {
		return t, poison(t)
	}
	values := make([]float64, t.Numel())
	a.fill(c, random(c.Seed, a.name), values)
	return t, t.SetFloat64s(values)
}

// surroundingFill returns the pattern of the memory around the argument's elements.
func (a argument) surroundingFill(dt tensor.DType) func([]byte) {
	switch {
	case a.written():
		return canary
	case dt.IsFloat():
		return fillNaN
	}
	return fillNothing
}

// captureInputs prepares the reference. It reads arguments updated in place, before
// the operator changes them.
func (p *Problem) captureInputs() error {
	before := map[string][]float64{}
	for i, a := range p.decl.args {
		t, ok := p.Args[i].(*tensor.Tensor)
		if !ok || a.role != updated {
			continue
		}
		v, err := t.Float64s()
		if err != nil {
			return fmt.Errorf("%s: argument %s: %w", p.Op, a.name, err)
		}
		before[a.name] = v
	}
	p.reference = sync.OnceValues(func() (map[string][]float64, error) { return p.compute(before) })
	return nil
}

// Reference returns the expected values of every output, row-major, computed once
// in float64. The error names an input that could not be read, or is an *ArgumentError
// for an output of which the reference has another number of elements.
func (p *Problem) Reference() (map[string][]float64, error) { return p.reference() }

func (p *Problem) compute(before map[string][]float64) (map[string][]float64, error) {
	in := inputs{Case: p.Case, values: before}
	for i, a := range p.decl.args {
		t, ok := p.Args[i].(*tensor.Tensor)
		if !ok || a.role != input {
			continue
		}
		v, err := t.Float64s()
		if err != nil {
			return nil, fmt.Errorf("%s: argument %s: %w", p.Op, a.name, err)
		}
		in.values[a.name] = v
	}
	want := p.decl.reference(in)
	for name := range want {
		if !slices.ContainsFunc(p.Outputs, func(o Output) bool { return o.Name == name }) {
			delete(want, name)
		}
	}
	return want, p.checkComplete(want)
}

// checkComplete fails if the reference lacks an output, or has one of another size. Such an output would not be compared.
func (p *Problem) checkComplete(want map[string][]float64) error {
	for _, o := range p.Outputs {
		if n := p.Tensor(o.Name).Numel(); int64(len(want[o.Name])) != n {
			return &ArgumentError{
				Op: p.Op, Arg: o.Name, Expected: fmt.Sprintf("%d elements from the reference", n), Got: fmt.Sprint(len(want[o.Name])),
			}
		}
	}
	return nil
}

// Tensor returns the named argument's tensor on the host, or nil.
func (p *Problem) Tensor(name string) *tensor.Tensor {
	if i := slices.Index(p.ArgNames, name); i >= 0 {
		t, _ := p.Args[i].(*tensor.Tensor)
		return t
	}
	return nil
}

// Replace sets the values of the named tensor, row-major, before the problem is
// run. The error is an *ArgumentError or that of the tensor.
func (p *Problem) Replace(name string, values []float64) error {
	t := p.Tensor(name)
	if t == nil {
		return &ArgumentError{Op: p.Op, Arg: name, Expected: "a tensor of the problem", Got: "none"}
	}
	if err := t.SetFloat64s(values); err != nil {
		return fmt.Errorf("%s: argument %s: %w", p.Op, name, err)
	}
	return p.captureInputs()
}

// String returns the operator's name and the case.
func (p *Problem) String() string { return strings.TrimSpace(p.Op + " " + p.Case.String()) }
