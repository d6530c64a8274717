package optests

import (
	"math"

	"github.com/aiter-go/aiter/tensor"
)

// Tolerance bounds an error: |got-want| <= Abs + Rel*|want|.
type Tolerance struct{ Rel, Abs float64 }

// allows reports whether an error is within the bounds. An infinite error never
// is; an error of 0, which two NaNs have, always is.
func (t Tolerance) allows(abs, want float64) bool {
	return abs == 0 || !math.IsInf(abs, 0) && abs <= t.Abs+t.Rel*math.Abs(want)
}

// toleranceClass is a row of the tolerance table: how an output is computed.
type toleranceClass int

const (
	shortSum toleranceClass = iota // a short sum, rounded to the output's type
	longSum                        // a sum over all positions of all rows
	copied                         // copied, bit for bit
)

// The largest relative errors of one rounding to nearest.
const (
	unitFloat32  = 1.0 / (1 << 24)
	unitFloat16  = 1.0 / (1 << 11)
	unitBFloat16 = 1.0 / (1 << 8)
)

// toleranceOf is the largest error that an output may have. A sum over all positions
// may be off by 1e-3 besides the rounding to its type.
func toleranceOf(k toleranceClass, dt tensor.DType) Tolerance {
	return map[toleranceClass]map[tensor.DType]Tolerance{
		shortSum: {
			tensor.Float32:  {Rel: 3e-4, Abs: 1e-3},
			tensor.Float16:  {Rel: 3e-3, Abs: 5e-3},
			tensor.BFloat16: {Rel: 1e-2, Abs: 5e-2},
		},
		longSum: {
			tensor.Float32:  {Rel: 1e-3, Abs: 1e-3},
			tensor.Float16:  {Rel: 1e-3 + unitFloat16, Abs: 1e-3},
			tensor.BFloat16: {Rel: 1e-3 + unitBFloat16, Abs: 1e-3},
		},
		copied: {},
	}[k][dt]
}

// idealTolerance is the accuracy of sums in float32 that are rounded once to the
// output's type. It adds 1e-5, relative to the element or to the output's root mean
// square, whichever is larger, for sums that cancel.
func idealTolerance(k toleranceClass, dt tensor.DType, want []float64) Tolerance {
	if k == copied {
		return Tolerance{}
	}
	unit := map[tensor.DType]float64{
		tensor.Float32: unitFloat32, tensor.Float16: unitFloat16, tensor.BFloat16: unitBFloat16,
	}[dt]
	subnormal := 0.0
	if dt == tensor.Float16 {
		subnormal = 1.0 / (1 << 25)
	}
	return Tolerance{Rel: unit + 1e-5, Abs: 1e-5*rms(want) + subnormal}
}

func rms(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum / float64(max(len(v), 1)))
}
