package perf

import (
	"strings"

	"github.com/aiter-go/aiter/device"
	optests "github.com/aiter-go/aiter/op_tests"
)

// Peaks are the highest arithmetic rates of a device, in 10^9 floating-point operations per second; a multiplication with
// an addition counts as two. A rate is 0 if it is unknown.
type Peaks struct {
	Vector float64 // float32, in the vector units
	Matrix float64 // float16 or bfloat16 with float32 sums, in the matrix units, dense
}

// rate is the number of multiplications with an addition that a unit of [device.Info] does in a clock.
type rate struct{ vector, matrix float64 }

// rates lists the architectures by name. AMD: "FLOPS/clock/CU" of the CDNA 2, 3 and 4 white papers (vector: packed
// float32) and of gpuopen.com's "Using the Matrix Cores of AMD RDNA 4" (vector: dual issue), halved; a unit from gfx10 on
// is two compute units. NVIDIA: "Throughput of Native Arithmetic Instructions" of the CUDA programming guide, and the
// architecture white papers' FMA operations of a tensor core and clock, times the tensor cores of a multiprocessor. The
// test multiplies each rate with the units and the clock of a product, and compares with its data sheet.
func rates() map[string]rate {
	return map[string]rate{
		"gfx90a":  {128, 512},
		"gfx942":  {128, 1024},
		"gfx950":  {128, 2048},
		"gfx1100": {2 * 128, 2 * 256},
		"gfx1201": {2 * 128, 2 * 512},
		"sm_80":   {64, 1024},
		"sm_86":   {128, 512},
		"sm_89":   {128, 512},
		"sm_90":   {128, 2048},
		"sm_100":  {128, 4096},
		"sm_120":  {128, 512},
	}
}

// PeaksOf returns the peaks of a device: units times clock times the rate of the architecture. The peaks of a CPU are
// unknown, because the system reports neither the number of its multipliers nor its clock under load.
func PeaksOf(info device.Info) Peaks {
	r := rates()[info.Target.Arch()]
	if strings.Contains(info.Name, "GeForce") {
		r.matrix /= 2 // with float32 sums
	}
	const flops = 2
	unit := flops * float64(info.Units) * float64(info.ClockMHz) / 1e3
	return Peaks{Vector: unit * r.vector, Matrix: unit * r.matrix}
}

// GFlops returns the arithmetic rate of the median call, in 10^9 operations per second, see [Peaks].
func (r Measurement) GFlops() float64 {
	if r.Median <= 0 {
		return 0
	}
	return 2 * r.MultiplyAdds / r.Median / 1e3
}

// VectorFraction returns the arithmetic rate relative to the peak of the vector units, 0 if one of them is unknown.
func (r Measurement) VectorFraction(p Peaks) float64 { return fraction(r.GFlops(), p.Vector) }

// MatrixFraction returns the same for the matrix units, 0 for a case of another element type than they multiply.
func (r Measurement) MatrixFraction(p Peaks, c optests.Case) float64 {
	if c.DType.Size() != 2 {
		return 0
	}
	return fraction(r.GFlops(), p.Matrix)
}

func fraction(rate, peak float64) float64 {
	if peak <= 0 {
		return 0
	}
	return rate / peak
}
