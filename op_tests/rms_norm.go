package optests

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// RMSNorm holds the sizes and options of rms_norm. Sizes count elements and may be 0.
type RMSNorm struct {
	Rows, Dim int64
	Eps       float64 // default 1e-6
	// The first LeadingRank elements of Leading are the sizes of x's dimensions, except
	// the last. If LeadingRank is 0, x is (Rows, Dim), or (Dim) with OneRow.
	Leading     [7]int64
	LeadingRank int
	OneRow      bool
	// RowsAdjacent gives the rows, not their elements, the smallest stride.
	RowsAdjacent bool
}

// rmsNorm declares out = x * rsqrt(mean(x^2) + eps) * weight over the last dimension.
func rmsNorm() operator {
	return operator{
		name: "rms_norm",
		args: []argument{
			rmsNormRows(argument{name: "out", role: output, tolerance: rounded}),
			rmsNormRows(argument{name: "x", fill: randomNormals}),
			{name: "weight", shape: func(c Case) []int64 { return []int64{normOf(c).Dim} }, dtype: typeWeight, fill: randomNormals},
			{name: "eps", role: option, value: func(c Case) any { return normOf(c).Eps }},
		},
		family: rmsNormFamily, cases: rmsNormCases, infer: inferRMSNorm, reference: referenceRMSNorm,
	}
}

// rmsNormFamily declares the flags of the commands and the columns of their reports.
func rmsNormFamily() family {
	return family{zero: RMSNorm{}, params: []Param{
		sizeParam("rows", "number of rows", func(p *RMSNorm) *int64 { return &p.Rows }),
		sizeParam("dim", "elements of a row", func(p *RMSNorm) *int64 { return &p.Dim }),
		floatParam("eps", "added to the mean of the squares", func(p *RMSNorm) *float64 { return &p.Eps }),
	}}
}

// referenceRMSNorm computes in float64, except that a sum of squares overflows as a float32 does.
func referenceRMSNorm(in inputs) map[string][]float64 {
	p, x, w := normOf(in.Case), in.values["x"], in.values["weight"]
	dim, out := int(p.Dim), make([]float64, len(x))
	parallel(len(x)/max(dim, 1), func(row int) {
		sum := 0.0
		for _, v := range x[row*dim : (row+1)*dim] {
			sum += v * v
		}
		scale := 1 / math.Sqrt(float64(float32(sum))/float64(dim)+p.Eps)
		for i := row * dim; i < (row+1)*dim; i++ {
			out[i] = x[i] * scale * w[i%dim]
		}
	})
	return map[string][]float64{"out": out}
}

// normOf returns the parameters of a case.
func normOf(c Case) RMSNorm { return ParamsOf[RMSNorm](c) }

// Complete implements [Params].
func (p RMSNorm) Complete() (Params, error) {
	if p.Eps == 0 {
		p.Eps = 1e-6
	}
	if p.LeadingRank == 0 && !p.OneRow {
		p = p.withLeading(p.Rows)
	}
	if !(p.Eps >= 0x1p-126 && p.Eps <= math.MaxFloat32) {
		return p, &CaseError{Field: "eps", Got: fmt.Sprint(p.Eps), Expected: "a normal float32 above 0"}
	}
	if err := checkAtLeast(atLeast{"rows", p.Rows, 0}, atLeast{"dim", p.Dim, 0}); err != nil {
		return p, err
	}
	if rows := product(p.Leading[:p.LeadingRank]); rows != p.Rows {
		return p, &CaseError{Field: "leading dimensions", Got: fmt.Sprint(rows) + " rows", Expected: fmt.Sprint(p.Rows)}
	}
	return p, checkMaxElements("rows*dim", float64(p.Rows)*float64(p.Dim))
}

// Elements implements [Params].
func (p RMSNorm) Elements() int64 { return p.Rows * p.Dim }

// Words implements [Params].
func (p RMSNorm) Words() (sizes, options []string) {
	return []string{fmt.Sprintf("r%d_d%d", p.Rows, p.Dim)}, setWords(
		flagWord{p.Eps != 0 && p.Eps != 1e-6, fmt.Sprintf("eps%g", p.Eps)},
		flagWord{p.LeadingRank > 1, fmt.Sprintf("leading%d", p.Leading[:p.LeadingRank])}, flagWord{p.OneRow, "onerow"},
		flagWord{p.RowsAdjacent, "rowsadjacent"},
	)
}

// withLeading sets the sizes of x's dimensions except the last, and Rows, their product.
func (p RMSNorm) withLeading(sizes ...int64) RMSNorm {
	p.Rows, p.OneRow, p.Leading = product(sizes), len(sizes) == 0, [7]int64{}
	p.LeadingRank = copy(p.Leading[:], sizes)
	return p
}

func product(sizes []int64) int64 {
	n := int64(1)
	for _, size := range sizes {
		n *= size
	}
	return n
}

// rmsNormRows completes the declaration of a tensor of x's shape and type.
func rmsNormRows(a argument) argument {
	a.dtype = typeX
	a.shape = func(c Case) []int64 {
		p := normOf(c)
		return append(slices.Clone(p.Leading[:p.LeadingRank]), p.Dim)
	}
	a.placement = a.activationPlacement
	a.order = func(c Case, rank int) []int {
		dims := rowMajor(rank)
		if normOf(c).RowsAdjacent {
			dims = append(dims[1:], dims[0])
		}
		return dims
	}
	return a
}

// rounded is for a result of a few operations in float32 that is rounded once. Abs is the smallest subnormal number of the
// type: subnormal results have no small relative error.
func rounded(dt tensor.DType) Tolerance {
	least := map[tensor.DType]float64{tensor.Float32: 0x1p-149, tensor.Float16: 0x1p-24, tensor.BFloat16: 0x1p-133}[dt]
	return Tolerance{Rel: 1e-5 + unitOf(dt), Abs: least}
}

func inferRMSNorm(given args) (Case, error) {
	w, err := given.ranked("weight", 1, "(dim)")
	if err != nil {
		return Case{}, err
	}
	x := given.tensor("x")
	if x == nil {
		return Case{}, &ArgumentError{Arg: "x", Expected: "a tensor (..., dim)", Got: "none"}
	}
	if x.Rank() < 1 || x.Rank() > 8 {
		return Case{}, &ArgumentError{Arg: "x", Expected: "a tensor (..., dim) of 1 to 8 dimensions", Got: fmt.Sprintf("shape %v", x.Shape())}
	}
	last := x.Rank() - 1
	p := RMSNorm{Dim: x.Dim(last)}.withLeading(x.Shape()[:last]...)
	p.Eps, _ = given["eps"].(float64)
	return Case{DType: x.DType(), WeightDType: w.DType(), Params: p}, nil
}

func rmsNormOf(rows, dim int64) Case { return Case{Params: RMSNorm{Rows: rows, Dim: dim, Eps: 1e-6}} }

func rmsNormCases() caseLists {
	types := []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
	lists := caseLists{
		defaults: rmsNormOf(64, 4096),
		configs: []Config{
			{"Tiny", rmsNormOf(2, 64)}, {"Small", rmsNormOf(64, 1024)}, {"Odd", rmsNormOf(63, 1001)}, {"Wide", rmsNormOf(4, 100_000)},
			{"Decode 1", rmsNormOf(1, 4096)}, {"Decode 256", rmsNormOf(256, 5120)}, {"QK norm", rmsNormOf(8192*40, 128)},
			{"Llama 8B", rmsNormOf(8192, 4096)}, {"Llama 70B", rmsNormOf(8192, 8192)}, {"Llama 405B", rmsNormOf(8192, 16384)},
		},
		sweep: []Case{
			rmsNormOf(1, 4096), rmsNormOf(16, 4096), rmsNormOf(256, 4096), rmsNormOf(1024, 4096), rmsNormOf(4096, 4096), rmsNormOf(8192, 5120),
			rmsNormOf(8192, 8192), rmsNormOf(16384, 8192),
		},
		grid: Grid{
			axes: []axis{
				axisOf(types, func(c *Case, dt tensor.DType) { c.DType = dt }),
				paramAxis([]int64{1, 2, 7, 8, 63, 64, 100, 256, 1024, 4096, 5120, 8192, 16384, 32768, 100_000},
					func(p *RMSNorm, n int64) { p.Dim = n }),
				paramAxis([]int64{1, 2, 30, 210}, func(p *RMSNorm, n int64) { p.Rows = n }),
				paramAxis([]float64{1e-6, 1e-5, 0.5}, func(p *RMSNorm, eps float64) { p.Eps = eps }),
				{1 << 3, func(c *Case, i int) { c.setStrides(i) }},
			},
			finish: func(c *Case, r *rand.Rand) {
				if r.IntN(2) == 0 {
					c.WeightDType = tensor.Float32
				}
				*c = With(*c, func(p *RMSNorm) { *p = p.withLeading(factors(p.Rows, r.IntN(5))...) })
			},
			shrink: func(c *Case) { *c = With(*c, func(p *RMSNorm) { *p = p.withLeading(1) }) },
		},
	}
	for _, size := range [][2]int64{{0, 8}, {8, 0}, {0, 0}, {1, 1}, {65536 + 3, 1}, {65536 + 3, 8}, {1 << 21, 1}, {3, 512*8*8 + 8},
		{257, 136}} {
		for i, dt := range types {
			c := rmsNormOf(size[0], size[1])
			c.DType, c.Seed, c.Slice = dt, uint64(size[1]+int64(i)), i == 2 && size[0] < 1<<20
			lists.edges = append(lists.edges, c)
		}
	}
	return lists
}

// factors returns up to n of the smallest prime factors of rows, then the factor that remains. For one row and n = 0 the
// list is empty.
func factors(rows int64, n int) []int64 {
	var list []int64
	for f := int64(2); rows > 1 && len(list) < n; f++ {
		for ; rows%f == 0 && len(list) < n; rows /= f {
			list = append(list, f)
		}
	}
	if rows > 1 || n > 0 {
		list = append(list, rows)
	}
	return list
}

// setStrides sets the i-th of 8 combinations: packed rows, slices, gaps of whole vectors between rows, a gap of one element,
// an unaligned output, adjacent rows.
func (c *Case) setStrides(i int) {
	switch {
	case i < 3: // packed rows
	case i == 3:
		c.Slice = true
	case i == 4:
		c.Inputs.RowGap, c.Outputs.RowGap = 8, 16
	case i == 5:
		c.Inputs.RowGap = 1
	case i == 6:
		c.Outputs.Offset = 1
	default:
		*c = With(*c, func(p *RMSNorm) { p.RowsAdjacent = true })
	}
}
