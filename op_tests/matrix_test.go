package optests_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aiter-go/aiter"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	arch "github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// matrixRoot returns a folder with the project's sources and the module in testdata/matrix.
func matrixRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, aiter.Sources); err != nil {
		t.Fatal(err)
	}
	appendTo := func(to, from string) {
		data, err := os.ReadFile(filepath.Join("testdata", "matrix", from))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, to)
		before, err := os.ReadFile(path)
		if err == nil {
			err = os.Remove(path) // a copy is read-only
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(before, data...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	appendTo("config/opt_compiler.toml", "module.toml")
	appendTo("csrc/kernels/matrix_tile.hip", "matrix_tile.hip")
	return root
}

// TestMatrixBuilds compiles aiter/gpu/matrix.h for each kind of matrix core.
func TestMatrixBuilds(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
	for tool, targets := range map[string][]string{
		"hipcc": {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"},
		"nvcc":  {"sm_80", "sm_90"},
	} {
		t.Run(tool, func(t *testing.T) {
			path := testenv.Tool(t, tool)
			variable := map[string]string{"hipcc": "HIPCC", "nvcc": "NVCC"}[tool]
			env := func(name string) string {
				if name == variable {
					return path
				}
				return os.Getenv(name)
			}
			reg, err := registry.Open(t.Context(), registry.Options{Root: matrixRoot(t), CacheDir: t.TempDir(), Getenv: env})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = reg.Close() })
			var reqs []jit.Request
			for _, name := range targets {
				x, err := arch.Parse(name)
				if err != nil {
					t.Fatal(err)
				}
				reqs = append(reqs, jit.Request{Module: "module_matrix_tile", Target: x})
			}
			if _, err := reg.Manager().Build(t.Context(), reqs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMatrixFragments compares products of tiles on a GPU's matrix cores with sums of integers, which are exact: each lane
// holds the elements that aiter/gpu/matrix.h specifies.
func TestMatrixFragments(t *testing.T) {
	dev, err := tensor.ParseDevice(*deviceFlag)
	if err != nil {
		t.Fatal(err)
	}
	if dev.IsHost() {
		t.Skip("matrix cores of a GPU: -device=cuda:0 or rocm:0")
	}
	reg, err := registry.Open(t.Context(), registry.Options{Root: matrixRoot(t), CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	for _, dtype := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
		t.Run(dtype.String(), func(t *testing.T) { checkFragments(t, remote{reg.Devices(), dev}, reg, dtype) })
	}
}

func checkFragments(t *testing.T, dev remote, reg *registry.Registry, dtype tensor.DType) {
	const pitch = 32 // elements between rows of a, columns of b, and columns of the results
	at := func(values []float64, i, k int) float64 { return values[i*pitch+k] }
	fill := func(factor int) []float64 {
		values := make([]float64, pitch*pitch)
		for i := range values {
			values[i] = float64(i*factor%17 - 8)
		}
		return values
	}
	a, b := fill(7), fill(11)
	device := map[string]*tensor.Tensor{}
	upload := func(name string, dt tensor.DType, values []float64) any {
		host, err := tensor.FromFloat64s(dt, values, int64(len(values)))
		if err != nil {
			t.Fatal(err)
		}
		if device[name], err = dev.ToDevice(host); err != nil {
			t.Fatal(err)
		}
		return device[name]
	}
	args := []any{
		upload("widest", tensor.Float32, make([]float64, pitch*16)), upload("narrow", tensor.Float32, make([]float64, pitch*16)),
		upload("transposed", tensor.Float32, make([]float64, pitch*16)), upload("step", tensor.Int32, []float64{-1}),
		upload("a", dtype, a), upload("b", dtype, b),
	}
	if err := call(t.Context(), reg, "matrix_tile", args); err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for name, on := range device {
		host, err := dev.ToHost(on)
		if err != nil {
			t.Fatal(err)
		}
		if got[name], err = host.Float64s(); err != nil {
			t.Fatal(err)
		}
		if err := dev.Free(on); err != nil {
			t.Fatal(err)
		}
	}
	step := int(got["step"][0])
	if step != 16 && step != 32 {
		t.Fatalf("the GPU has steps of %d, want 16 or 32", step)
	}
	type product struct {
		rows, depth int
		first       float64
		at          func(row, column, k int) float64
	}
	products := map[string]product{
		"widest":     {step, step, 1, func(row, column, k int) float64 { return at(a, row, k) * at(b, column, k) }},
		"narrow":     {16, 16, 1, func(row, column, k int) float64 { return at(a, row, k) * at(b, column, k) }},
		"transposed": {16, 16, 0, func(row, column, k int) float64 { return at(a, k, row) * at(b, k, column) }},
	}
	for _, name := range slices.Sorted(maps.Keys(products)) {
		p := products[name]
		for column := range 16 {
			for row := range p.rows {
				want := p.first
				for k := range p.depth {
					want += p.at(row, column, k)
				}
				if sum := at(got[name], column, row); sum != want {
					t.Fatalf("%s, row %d, column %d: got %g, want %g", name, row, column, sum, want)
				}
			}
		}
	}
}
