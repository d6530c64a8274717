package optests

import (
	"iter"
	"math/rand/v2"

	"github.com/aiter-go/aiter/tensor"
)

// Grid is a set of cases: every combination of the listed values.
type Grid struct {
	Seqlens, Dims, Widths []int64
	DTypes                []tensor.DType
	Layouts               []Layout
	// Options are the combinations of flags, laid over the sizes and types.
	Options []Case
	// ParamDTypes are the types of weight, bias and their gradients; each case
	// draws its own mix. One case in eight is Mixed in layout.
	ParamDTypes []tensor.DType
	// Batch is the number of rows of a case; large cases have one row.
	Batch int64
}

// largeRow is the number of elements beyond which a case has one row.
const largeRow = 1 << 20

// StandardGrid is the grid that every target must hold.
func StandardGrid() Grid {
	types := []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
	return Grid{
		Batch:   2,
		Widths:  []int64{1, 2, 3, 4, 5, 8},
		Dims:    []int64{1, 3, 64, 4096 + 32},
		Seqlens: []int64{1, 2, 3, 8, 16, 32, 63, 64, 128, 129, 130, 151, 256, 372, 512, 784, 1024, 1134, 2048, 4096},
		DTypes:  types, ParamDTypes: types,
		Layouts: []Layout{ChannelFirst, ChannelLast},
		Options: flagSets(),
	}
}

// flagSets is every combination of activation, bias, slices, states and
// sequence numbers.
func flagSets() []Case {
	var sets []Case
	for bits := range 1 << 5 {
		sets = append(sets, Case{
			SiLU: bits&1 != 0, NoBias: bits&2 != 0, Slice: bits&4 != 0,
			WithStates: bits&8 != 0, WithSeqIdx: bits&16 != 0,
		})
	}
	return sets
}

// Without drops the cases for which drop is true of their flags.
func (g Grid) Without(drop func(flags Case) bool) Grid {
	var kept []Case
	for _, o := range g.Options {
		if !drop(o) {
			kept = append(kept, o)
		}
	}
	g.Options = kept
	return g
}

// axes are the lengths of the grid's dimensions, fastest last.
func (g Grid) axes() [6]int {
	return [6]int{
		len(g.Widths), len(g.DTypes), len(g.Layouts), len(g.Options), len(g.Dims), len(g.Seqlens),
	}
}

// Len is the number of cases.
func (g Grid) Len() int {
	n := 1
	for _, a := range g.axes() {
		n *= a
	}
	return n
}

// at is the case with these indices along the axes.
func (g Grid) at(i [6]int, seed uint64) Case {
	c := g.Options[i[3]]
	c.Width, c.DType, c.Layout, c.Dim, c.Seqlen = g.Widths[i[0]], g.DTypes[i[1]], g.Layouts[i[2]], g.Dims[i[4]], g.Seqlens[i[5]]
	c.Batch, c.Seed = g.Batch, seed
	if c.Dim*c.Seqlen > largeRow {
		c.Batch = 1
	}
	r := random(seed, "case")
	c.Mixed = r.IntN(8) == 0
	draw := func() tensor.DType { return g.ParamDTypes[r.IntN(len(g.ParamDTypes))] }
	c.WeightDType, c.BiasDType = draw(), draw()
	if r.IntN(2) == 0 {
		c.GradDType = tensor.Float32
	}
	return c
}

// All yields every case, in an order that does not change.
func (g Grid) All() iter.Seq[Case] {
	axes := g.axes()
	return func(yield func(Case) bool) {
		for n := range g.Len() {
			var at [6]int
			rest := n
			for a := len(axes) - 1; a >= 0; a-- {
				at[a], rest = rest%axes[a], rest/axes[a]
			}
			if !yield(g.at(at, uint64(n))) {
				return
			}
		}
	}
}

// Sample yields n cases spread over the grid: along each axis the values take
// turns in random order, so that each appears equally often. A case of more
// than limit elements has its dim lowered to the second largest, to stay quick.
func (g Grid) Sample(n int, limit int64, seed uint64) iter.Seq[Case] {
	r := rand.New(rand.NewPCG(seed, 0))
	axes := g.axes()
	return func(yield func(Case) bool) {
		if g.Len() == 0 {
			return
		}
		var turns [6][]int
		for i := range n {
			var at [6]int
			for a := range axes {
				if i%axes[a] == 0 {
					turns[a] = r.Perm(axes[a])
				}
				at[a] = turns[a][i%axes[a]]
			}
			c := g.at(at, seed+uint64(i))
			if c.Batch*c.Dim*c.Seqlen > limit {
				c.Dim = g.smallerDim()
			}
			if !yield(c) {
				return
			}
		}
	}
}

// smallerDim is the second largest of the grid's dims.
func (g Grid) smallerDim() int64 {
	first, second := int64(0), int64(0)
	for _, d := range g.Dims {
		if d > first {
			first, second = d, first
		} else if d > second {
			second = d
		}
	}
	return max(second, 1)
}
