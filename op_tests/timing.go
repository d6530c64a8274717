package optests

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/aiter-go/aiter/tensor"
)

// Traffic is the number of bytes that one call has to move: each input read
// once, each output written once, what is updated in place both. The error is an
// *UnknownOpError or a *CaseError.
func Traffic(op string, c Case) (int64, error) {
	decl, c, err := prepare(op, c)
	if err != nil {
		return 0, err
	}
	bytes := int64(0)
	for _, a := range decl.args {
		if a.role != option && a.isPassed(c) {
			bytes += a.elements(c) * a.dtype(c).Size()
		}
	}
	return bytes, nil
}

// prepare finds the declaration and writes the case out in full.
func prepare(op string, c Case) (operator, Case, error) {
	decl, err := lookup(op)
	if err != nil {
		return decl, c, err
	}
	c = c.normal()
	if err := c.check(); err != nil {
		return decl, c, fmt.Errorf("%s: %w", op, err)
	}
	if decl.adapt != nil {
		c = decl.adapt(c)
	}
	return decl, c, nil
}

// elements counts what a call moves of an argument, one way or both.
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

// stateElements are those of one slot for each sequence.
func stateElements(c Case) int64 { return c.Batch * c.Dim * c.stateLen() }

// varlenStateElements are those that end up in a state.
func varlenStateElements(c Case) int64 { return min(c.tokens()*c.Dim, stateElements(c)) }

// evenStarts cuts the tokens into sequences of one length.
func evenStarts(c Case, values []float64) {
	for i := range values {
		values[i] = float64(int64(i) * c.tokens() / max(c.Batch, 1))
	}
}

// GenerateForTiming makes a problem as [Generate] does, except that it is quick
// at any size: a few random numbers fill the inputs over and over, outputs are
// not poisoned, packed sequences have one length, and there is no reference.
func GenerateForTiming(op string, c Case) (*Problem, error) {
	decl, c, err := prepare(op, c)
	if err != nil {
		return nil, err
	}
	p := &Problem{Op: op, Case: c, reference: noReference}
	for i, a := range decl.args {
		v, err := a.supplyForTiming(c)
		if err != nil {
			return nil, decl.named(err)
		}
		p.Args, p.ArgNames = append(p.Args, v), append(p.ArgNames, a.name)
		if v != nil && a.written() {
			p.Outputs = append(p.Outputs, Output{Name: a.name, Arg: i, tolerance: a.tolerance})
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
	if !a.dtype(c).IsFloat() {
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

// blockElements are enough for no two neighbours to be alike.
const blockElements = 1 << 12

// randomBlock is the bytes of some normally distributed numbers.
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
