package optests

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/tensor"
)

// Result is the comparison of one output with the reference.
type Result struct {
	Name     string
	Elements int64
	// MaxAbsErr is the largest |got-want|; +Inf if got or want alone is NaN.
	MaxAbsErr float64
	// MaxRelErr is the largest |got-want| / max(|want|, the absolute tolerance).
	MaxRelErr float64
	// Mismatches is the number of elements beyond the operator's tolerance.
	Mismatches int64
	// BeyondIdeal is the number of elements less accurate than a float32 sum rounded once.
	BeyondIdeal int64
	// Unwritten is the number of elements that still hold the poison.
	Unwritten int64
	// FirstBad is the index of the first mismatch, nil if there is none; Got and
	// Want are the values there.
	FirstBad  []int64
	Got, Want float64
	// CanaryBroken reports whether memory outside the output was written. CanaryByte
	// is the first such byte, relative to the output's first element.
	CanaryBroken bool
	CanaryByte   int64
}

// OK reports whether the output is right and no memory around it was written.
func (r Result) OK() bool { return r.Mismatches == 0 && !r.CanaryBroken }

// Passed reports whether every result is OK.
func Passed(results []Result) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return !r.OK() })
}

// String is one line of text.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: max abs err %.3g, max rel err %.3g, errors %d/%d", r.Name, r.MaxAbsErr, r.MaxRelErr, r.Mismatches, r.Elements)
	if r.FirstBad != nil {
		fmt.Fprintf(&b, ", first at %v: expected %g, got %g", r.FirstBad, r.Want, r.Got)
	}
	if r.BeyondIdeal > 0 && r.Mismatches == 0 {
		fmt.Fprintf(&b, ", %d worse than one rounding", r.BeyondIdeal)
	}
	if r.Unwritten > 0 {
		fmt.Fprintf(&b, ", %d never written", r.Unwritten)
	}
	if r.CanaryBroken {
		fmt.Fprintf(&b, ", wrote outside the output at byte %d", r.CanaryByte)
	}
	return b.String()
}

// MarshalJSON writes an infinite error as null: JSON has no infinity.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name         string   `json:"name"`
		MaxAbsErr    *float64 `json:"max_abs_err"`
		MaxRelErr    *float64 `json:"max_rel_err"`
		Mismatches   int64    `json:"mismatches"`
		Elements     int64    `json:"elements"`
		BeyondIdeal  int64    `json:"beyond_ideal"`
		Unwritten    int64    `json:"unwritten"`
		FirstBad     []int64  `json:"first_bad,omitempty"`
		CanaryBroken bool     `json:"canary_broken"`
	}{
		r.Name, finite(r.MaxAbsErr), finite(r.MaxRelErr), r.Mismatches, r.Elements,
		r.BeyondIdeal, r.Unwritten, r.FirstBad, r.CanaryBroken,
	})
}

func finite(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

// Check compares the outputs with the reference. got has their tensors by name, in
// host memory. A tensor copied from a device must be in a copy of its whole storage,
// because Check reads the canaries. It returns one result for each output, in the
// schema's order. The error is an *ArgumentError or that of a tensor that could not
// be read.
func (p *Problem) Check(got map[string]*tensor.Tensor) ([]Result, error) {
	want, err := p.Reference()
	if err != nil {
		return nil, err
	}
	results := make([]Result, 0, len(p.Outputs))
	for _, o := range p.Outputs {
		if err := p.sameLayout(o, got[o.Name]); err != nil {
			return nil, err
		}
		r, err := o.compare(got[o.Name], want[o.Name])
		if err != nil {
			return nil, fmt.Errorf("%s: output %s: %w", p.Op, o.Name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// sameLayout verifies that t has the type, the shape and the storage layout of output o.
func (p *Problem) sameLayout(o Output, t *tensor.Tensor) error {
	output := p.Args[o.Arg].(*tensor.Tensor)
	switch {
	case t == nil:
		return &ArgumentError{Op: p.Op, Arg: o.Name, Expected: "the output as " + layoutName(output), Got: "none"}
	case t.DType() != output.DType() || !slices.Equal(t.Shape(), output.Shape()):
	case o.guarded && (t.Offset() != output.Offset() || t.Storage().Size() != output.Storage().Size() ||
		!slices.Equal(t.Strides(), output.Strides())):
	default:
		return nil
	}
	return &ArgumentError{Op: p.Op, Arg: o.Name, Expected: "the output as " + layoutName(output), Got: layoutName(t)}
}

func layoutName(t *tensor.Tensor) string {
	return fmt.Sprintf("%s%v, strides %v, at element %d of %d bytes", t.DType(), t.Shape(), t.Strides(), t.Offset(), t.Storage().Size())
}

// compare checks every element of t, then the memory around them.
func (o Output) compare(t *tensor.Tensor, want []float64) (Result, error) {
	got, err := t.Float64s()
	if err != nil {
		return Result{}, err
	}
	r := o.compareValues(t, got, want)
	if o.poisoned && r.Mismatches > 0 {
		if r.Unwritten, err = countPoison(t); err != nil {
			return r, err
		}
	}
	if !o.guarded {
		return r, nil
	}
	at, err := firstStrayWrite(t)
	if at >= 0 {
		r.CanaryBroken, r.CanaryByte = true, at-t.ByteOffset()
	}
	return r, err
}

func (o Output) compareValues(t *tensor.Tensor, got, want []float64) Result {
	limit := o.limit(t.DType())
	best := limit // for values that are copied, which no operation rounds
	if limit != (Tolerance{}) {
		best = idealTolerance(t.DType(), want)
	}
	r := Result{Name: o.Name, Elements: t.Numel()}
	for i, w := range want {
		abs := distance(t.DType(), got[i], w)
		r.MaxAbsErr = max(r.MaxAbsErr, abs)
		r.MaxRelErr = max(r.MaxRelErr, relative(abs, max(math.Abs(w), limit.Abs)))
		if !best.allows(abs, w) {
			r.BeyondIdeal++
		}
		if limit.allows(abs, w) {
			continue
		}
		if r.Mismatches++; r.FirstBad == nil {
			r.FirstBad, r.Got, r.Want = tensor.Unravel(int64(i), t.Shape()), got[i], w
		}
	}
	return r
}

// limit returns the largest error that the output may have.
func (o Output) limit(dt tensor.DType) Tolerance {
	if o.tolerance == nil {
		return shortSum(dt)
	}
	return o.tolerance(dt)
}

// distance is |got-want|: 0 for two equal infinities and for two NaNs, +Inf if one
// alone is infinite or NaN. A want beyond the type's range counts as infinite if
// got is.
func distance(dt tensor.DType, got, want float64) float64 {
	if math.IsInf(got, 0) {
		want = round(dt, want)
	}
	if got == want || math.IsNaN(got) && math.IsNaN(want) {
		return 0
	}
	d := math.Abs(got - want)
	if math.IsNaN(d) {
		return math.Inf(1)
	}
	return d
}

// round returns the value of the type that is nearest to v.
func round(dt tensor.DType, v float64) float64 {
	switch dt {
	case tensor.Float16:
		return float64(tensor.F64ToF16(v).Float32())
	case tensor.BFloat16:
		return float64(tensor.F64ToBF16(v).Float32())
	}
	return float64(float32(v))
}

func relative(abs, scale float64) float64 {
	if abs == 0 {
		return 0
	}
	return abs / scale
}
