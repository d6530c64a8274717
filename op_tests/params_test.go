package optests

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// otherParams are the parameters of no operator.
type otherParams struct {
	N   int64
	Eps float64
}

func (p otherParams) Complete() (Params, error)        { return p, nil }
func (p otherParams) Elements() int64                  { return p.N }
func (p otherParams) Words() (sizes, options []string) { return nil, nil }

// Each parameter of each operator can be set to other values, changes the case, and refuses values of other types.
func TestParams(t *testing.T) {
	type word string
	for _, op := range Operators() {
		params, usual := declared(t, op).Params(), declared(t, op).Default()
		if len(params) == 0 {
			t.Fatalf("%s has no parameters", op)
		}
		columns := map[string]bool{}
		for _, p := range params {
			values := map[Kind]any{Size: int64(77), Int: int64(77), Float: 0.75, Bool: true}
			if p.Kind == Choice {
				values[Choice] = p.Choices[len(p.Choices)-1]
			}
			c, err := p.Set(usual, values[p.Kind])
			if err != nil || p.Value(c) != values[p.Kind] || c == usual {
				t.Errorf("%s: %s set to %v is %v in %s, %v", op, p.Name, values[p.Kind], p.Value(c), c, err)
			}
			if on, ok := p.Value(c).(bool); ok && p.Cell(c) != (on != p.negated) {
				t.Errorf("%s: column %s is %v", op, p.Column, p.Cell(c))
			}
			if c, err := p.Set(usual, word("none")); !isType[*CaseError](err) || c != usual {
				t.Errorf("%s: %s set to a value of another type gives %s, %v", op, p.Name, c, err)
			}
			if columns[p.Column] || p.Usage == "" || p.Title == "" {
				t.Errorf("%s: %+v needs a column of its own, a usage and a title", op, p)
			}
			columns[p.Column] = true
		}
	}
}

// The parameter offset moves inputs and outputs. Offsets that are negative or too large are errors.
func TestOffset(t *testing.T) {
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd", "causal_conv1d_update"} {
		decl := declared(t, op)
		p := decl.Params()[slices.IndexFunc(decl.Params(), func(p Param) bool { return p.Name == "offset" })]
		if got := p.Cell(decl.Default()); got != nil {
			t.Errorf("%s: aligned tensors have the offset %v", op, got)
		}
		for offset, ok := range map[int64]bool{-1: false, 0: true, 3: true, maxElements + 1: false, math.MaxInt64: false} {
			c, err := p.Set(decl.Default(), offset)
			if err != nil {
				t.Fatal(err)
			}
			problem, err := decl.Generate(c)
			if (err == nil) != ok || (err != nil && !isType[*CaseError](err)) {
				t.Errorf("%s: offset %d: %v", op, offset, err)
			}
			for _, a := range decl.op.args {
				if err != nil || a.placement == nil {
					continue
				}
				if x := problem.Tensor(a.name); x != nil && x.ByteOffset()/x.DType().Size()%16 != offset {
					t.Errorf("%s: offset %d: %s begins at byte %d", op, offset, a.name, x.ByteOffset())
				}
			}
		}
	}
}

func TestChoices(t *testing.T) {
	for _, p := range declared(t, "causal_conv1d_fwd").Params() {
		if p.Name != "layout" {
			continue
		}
		_, err := p.Set(Case{}, "sideways")
		if err == nil || err.Error() != "layout: expected channel_first or channel_last, got sideways" {
			t.Errorf("layout sideways: %v", err)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, want := range map[string]bool{"use_silu": true, "x": false, "no_bias": false, "nothing": false} {
		if declared(t, "causal_conv1d_fwd").IsOption(name) != want {
			t.Errorf("%s is an option: %v, want %v", name, !want, want)
		}
	}
}

func TestFloatParam(t *testing.T) {
	p := floatParam("eps", "epsilon", func(o *otherParams) *float64 { return &o.Eps })
	c, err := p.Set(Case{}, 0.5)
	if err != nil || p.Value(c) != 0.5 || c.Params != (otherParams{Eps: 0.5}) {
		t.Errorf("eps is %v in %v, %v", p.Value(c), c.Params, err)
	}
	if _, err := p.Set(c, int64(1)); err == nil || err.Error() != "eps: expected a float64, got 1" {
		t.Errorf("eps set to an int64: %v", err)
	}
}

// The error for a case of another family names the type of its parameters, not one of its sizes.
func TestForeignParams(t *testing.T) {
	for _, op := range Operators() {
		_, err := Generate(op, Case{Params: otherParams{N: 3}})
		if !isType[*CaseError](err) || !strings.Contains(err.Error(), "got optests.otherParams") {
			t.Errorf("%s: %v", op, err)
		}
	}
}
