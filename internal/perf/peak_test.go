package perf_test

import (
	"math"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/perf"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// The peaks of products are those of their data sheets, in Tflop/s: float32 vector, and dense 16-bit matrix with float32
// sums, at the boost clock. The H100's matrix figure is NVIDIA's, for 1,830 MHz.
func TestPeaks(t *testing.T) {
	for _, c := range []struct {
		name, arch     string
		units, mhz     int
		vector, matrix float64
	}{
		{"AMD Instinct MI250X, one of two dies", "gfx90a", 110, 1700, 47.9, 191.5},
		{"AMD Instinct MI300X", "gfx942", 304, 2100, 163.4, 1307.4},
		{"AMD Instinct MI355X", "gfx950", 256, 2400, 157.3, 2516.6},
		{"AMD Radeon RX 7900 XTX", "gfx1100", 48, 2500, 61.4, 122.8},
		{"AMD Radeon RX 9070 XT", "gfx1201", 32, 2970, 48.7, 195},
		{"NVIDIA A100-SXM4-80GB", "sm_80", 108, 1410, 19.5, 312},
		{"NVIDIA A10", "sm_86", 72, 1695, 31.2, 125},
		{"NVIDIA GeForce RTX 3090", "sm_86", 82, 1695, 35.6, 71},
		{"NVIDIA L4", "sm_89", 58, 2040, 30.3, 121},
		{"NVIDIA GeForce RTX 4090", "sm_89", 128, 2520, 82.6, 165.2},
		{"NVIDIA H100 80GB HBM3", "sm_90", 132, 1830, 61.8, 989.4},
		{"NVIDIA H200", "sm_90", 132, 1980, 66.9, 1070.5},
		{"NVIDIA B200", "sm_100", 148, 1855, 70.3, 2250},
		{"NVIDIA GeForce RTX 5090", "sm_120", 170, 2407, 104.8, 209.5},
		{"an unknown GPU", "gfx906", 60, 1725, 0, 0},
		{"a GPU that reports no clock", "sm_90", 132, 0, 0, 0},
		{"a CPU", "cpu", 0, 0, 0, 0},
	} {
		arch, err := target.Parse(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		got := perf.PeaksOf(device.Info{Name: c.name, Target: arch, Units: c.units, ClockMHz: c.mhz})
		if math.Abs(got.Vector/1e3-c.vector) > 0.006*c.vector || math.Abs(got.Matrix/1e3-c.matrix) > 0.006*c.matrix {
			t.Errorf("%s: %+v, want %g and %g Tflop/s", c.name, got, c.vector, c.matrix)
		}
	}
}

func TestFractionsOfPeaks(t *testing.T) {
	peaks := perf.Peaks{Vector: 4000, Matrix: 64000}
	m := perf.Measurement{Stats: perf.Stats{Median: 2}, MultiplyAdds: 2e6} // 4e6 operations in 2 us
	single, half := optests.Case{DType: tensor.Float32}, optests.Case{DType: tensor.BFloat16}
	for what, c := range map[string]struct{ got, want float64 }{
		"rate":                     {m.GFlops(), 2000},
		"vector":                   {m.VectorFraction(peaks), 0.5},
		"matrix, bfloat16":         {m.MatrixFraction(peaks, half), 0.03125},
		"matrix, float32":          {m.MatrixFraction(peaks, single), 0},
		"vector, unknown peak":     {m.VectorFraction(perf.Peaks{}), 0},
		"matrix, unknown peak":     {m.MatrixFraction(perf.Peaks{}, half), 0},
		"rate without arithmetic":  {perf.Measurement{Stats: m.Stats}.GFlops(), 0},
		"rate of an instant":       {perf.Measurement{MultiplyAdds: 1}.GFlops(), 0},
		"vector without operation": {perf.Measurement{Stats: m.Stats}.VectorFraction(peaks), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %g, want %g", what, c.got, c.want)
		}
	}
}
