package optests

import (
	"math"

	"github.com/aiter-go/aiter/tensor"
)

// Tolerance bounds an error: |got-want| <= Abs + Rel*|want|.
type Tolerance struct{ Rel, Abs float64 }

// allows reports whether an error is within the bounds. An infinite error never
// is. An error of 0, such as that of two NaNs, always is.
func (t Tolerance) allows(abs, want float64) bool {
	return abs == 0 || !math.IsInf(abs, 0) && abs <= t.Abs+t.Rel*math.Abs(want)
}

// tolerances returns the largest error that an output may have, by its element type.
type tolerances func(tensor.DType) Tolerance

// The largest relative errors of one rounding to nearest.
const (
	unitFloat32  = 1.0 / (1 << 24)
	unitFloat16  = 1.0 / (1 << 11)
	unitBFloat16 = 1.0 / (1 << 8)
	unitE4M3     = 1.0 / (1 << 4)
	unitE5M2     = 1.0 / (1 << 3)
)

// unitOf returns the largest relative error of one rounding to a float type.
func unitOf(dt tensor.DType) float64 {
	switch dt {
	case tensor.Float16:
		return unitFloat16
	case tensor.BFloat16:
		return unitBFloat16
	case tensor.Float8E4M3FN, tensor.Float8E4M3FNUZ:
		return unitE4M3
	case tensor.Float8E5M2:
		return unitE5M2
	}
	return unitFloat32
}

// shortSum is for a short sum that is rounded to the output's type.
func shortSum(dt tensor.DType) Tolerance {
	switch dt {
	case tensor.Float16:
		return Tolerance{Rel: 3e-3, Abs: 5e-3}
	case tensor.BFloat16:
		return Tolerance{Rel: 1e-2, Abs: 5e-2}
	}
	return Tolerance{Rel: 3e-4, Abs: 1e-3}
}

// longSum is for a sum over all positions of all rows: its relative error may be 1e-3
// besides that of the rounding to its type.
func longSum(dt tensor.DType) Tolerance {
	if dt == tensor.Float32 {
		return Tolerance{Rel: 1e-3, Abs: 1e-3}
	}
	return Tolerance{Rel: 1e-3 + unitOf(dt), Abs: 1e-3}
}

// copied is for values that are copied, bit for bit.
func copied(tensor.DType) Tolerance { return Tolerance{} }

// idealTolerance returns the accuracy of sums in float32 that are rounded once to the
// output's type. It adds 1e-5, relative to the element or to the output's root mean
// square, whichever is larger, for sums that cancel.
func idealTolerance(dt tensor.DType, want []float64) Tolerance {
	subnormal := 0.0
	if dt == tensor.Float16 {
		subnormal = 1.0 / (1 << 25)
	}
	return Tolerance{Rel: unitOf(dt) + 1e-5, Abs: 1e-5*rms(want) + subnormal}
}

func rms(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum / float64(max(len(v), 1)))
}
