package optests

import (
	"errors"
	"math/rand/v2"

	"github.com/aiter-go/aiter/tensor"
)

// Traffic returns the number of bytes that one call reads and writes at least: each
// input once, each output once, an argument updated in place twice; or as
// [Operator].Bytes counts them. The error is a *CaseError.
func (d Declaration) Traffic(c Case) (int64, error) {
	decl, c, err := d.op.prepare(c)
	if err != nil {
		return 0, err
	}
	if decl.traffic != nil {
		return decl.traffic(c), nil
	}
	bytes := int64(0)
	for _, a := range decl.args {
		if a.role != option && a.isPassed(c) {
			bytes += a.elements(c) * a.dtype(c).Size()
		}
	}
	return bytes, nil
}

// MultiplyAdds returns the least number of multiply-adds of one call: those of its sums of products, each computed once.
// Activation functions and the addition of a bias do not count. It is 0 for an operator that declares none. The error is
// a *CaseError.
func (d Declaration) MultiplyAdds(c Case) (float64, error) {
	decl, c, err := d.op.prepare(c)
	if err != nil || decl.multiplyAdds == nil {
		return 0, err
	}
	return decl.multiplyAdds(c), nil
}

// elements returns the number of elements of an argument that a call reads and writes. Those updated in place count twice.
func (a argument) elements(c Case) int64 {
	n := int64(1)
	for _, size := range a.shape(c) {
		n *= size
	}
	if a.elementsMoved != nil {
		n = min(n, a.elementsMoved(c))
	}
	if a.role == updated {
		n *= 2
	}
	return n
}

// GenerateForTiming is like [Generate] but fast at any size: the inputs repeat a
// few random numbers, outputs are not poisoned, packed sequences have equal
// lengths, and there is no reference.
func (d Declaration) GenerateForTiming(c Case) (*Problem, error) {
	decl, c, err := d.op.prepare(c)
	if err != nil {
		return nil, err
	}
	p := &Problem{Op: decl.name, Case: c, decl: decl, reference: noReference}
	for i, a := range decl.args {
		v, err := a.supplyForTiming(c)
		if err != nil {
			return nil, decl.named(err)
		}
		p.Args, p.ArgNames = append(p.Args, v), append(p.ArgNames, a.name)
		if v != nil && a.written() {
			p.Outputs = append(p.Outputs, Output{Name: a.name, Arg: i, tolerance: a.tolerance, pure: a.role == output})
		}
	}
	return p, nil
}

var errNoReference = errors.New("the problem was made for timing: use Generate to compare with the reference")

func noReference() (map[string][]float64, error) { return nil, errNoReference }

func (a argument) supplyForTiming(c Case) (any, error) {
	switch {
	case a.role == option:
		return a.value(c), nil
	case !a.isPassed(c):
		return nil, nil
	}
	if a.timingFill != nil {
		steady := a.timingFill
		a.fill = func(c Case, _ *rand.Rand, values []float64) { steady(c, values) }
	}
	if a.timedAsFilled || !a.dtype(c).IsFloat() {
		return a.generate(c)
	}
	block, err := randomBlock(a.dtype(c), random(c.Seed, a.name))
	if err != nil {
		return nil, err
	}
	return a.storageLayout(c).allocate(func(raw []byte) {
		for at := 0; at < len(raw); {
			at += copy(raw[at:], block)
		}
	})
}

// blockElements is the number of random values that an input repeats.
const blockElements = 1 << 12

// randomBlock returns the bytes of blockElements normally distributed numbers.
func randomBlock(dt tensor.DType, r *rand.Rand) ([]byte, error) {
	t, err := tensor.New(dt, blockElements)
	if err != nil {
		return nil, err
	}
	values := make([]float64, blockElements)
	randomNormals(Case{}, r, values)
	if err := t.SetFloat64s(values); err != nil {
		return nil, err
	}
	return t.Bytes()
}
