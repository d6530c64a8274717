package optests

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// wholeSequenceCases returns the cases of operators that take whole sequences.
func wholeSequenceCases() caseLists {
	return conv1dCases(conv1dOf(2, 64, 128), []Config{
		{"Mamba 130M", modelCase(16, 1536, 512)},
		{"Mamba 370M", modelCase(8, 2048, 1024)},
		{"Mamba 2.8B", modelCase(8, 5120, 2048)},
		{"Falcon Mamba 7B", modelCase(1, 8192, 16384)},
	}, conv1dOf(2, 256, 1024), conv1dOf(4, 512, 2048), conv1dOf(2, 4096, 4096))
}

// decodeCases returns the cases of operators that mostly take one position of each sequence.
func decodeCases() caseLists {
	return conv1dCases(conv1dOf(2, 64, 1), []Config{
		{"Decode 1", modelCase(1, 5120, 1)},
		{"Decode 16", modelCase(16, 5120, 1)},
		{"Decode 64", modelCase(64, 5120, 1)},
		{"Decode 256", modelCase(256, 5120, 1)},
		{"Decode 1024", modelCase(1024, 5120, 1)},
	}, conv1dOf(1, 256, 1), conv1dOf(1, 1024, 1), conv1dOf(4, 5120, 1), conv1dOf(4096, 5120, 1))
}

// conv1dCases adds small configurations to those of models, and the sizes of all
// of them to a sweep.
func conv1dCases(defaults Case, models []Config, sweep ...Case) caseLists {
	configs := append([]Config{
		{"Tiny", conv1dOf(1, 32, 64)},
		{"Small", conv1dOf(2, 64, 256)},
		{"Medium", conv1dOf(4, 64, 512)},
		{"Large", conv1dOf(4, 64, 1024)},
		{"No Bias", With(conv1dOf(2, 64, 256), func(p *Conv1d) { p.NoBias = true })},
		{"With SiLU", modelCase(2, 64, 256)},
	}, models...)
	for _, c := range configs {
		p := conv(c.Case)
		sizes := conv1dOf(p.Batch, p.Dim, p.Seqlen)
		// A sweep does not mix decoding with whole sequences: their speeds do not lie on one curve.
		if !slices.Contains(sweep, sizes) && (conv(defaults).Seqlen == 1) == (p.Seqlen == 1) {
			sweep = append(sweep, sizes)
		}
	}
	slices.SortStableFunc(sweep, func(a, b Case) int { return cmp.Compare(a.Elements(), b.Elements()) })
	return caseLists{defaults: defaults, configs: configs, sweep: sweep, edges: conv1dEdges(), grid: conv1dGrid()}
}

func conv1dOf(batch, dim, seqlen int64) Case {
	return Case{Params: Conv1d{Batch: batch, Dim: dim, Seqlen: seqlen, Width: 4}}
}

// modelCase returns a model's layer: with bias and SiLU, as in the models.
func modelCase(batch, dim, seqlen int64) Case {
	return With(conv1dOf(batch, dim, seqlen), func(p *Conv1d) { p.SiLU = true })
}

// largeSequence is a number of elements, dim*seqlen: cases of the grid with more have a batch of 1.
const largeSequence = 1 << 20

// conv1dGrid draws the types of weight, bias and gradients at random. One case in eight has mixed layouts. In two of
// three cases groups of 2, 3, 32 or all channels share a filter, where dim is divisible.
func conv1dGrid() Grid {
	types := []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
	return Grid{
		axes: []axis{
			paramAxis([]int64{1, 2, 3, 4, 5, 8}, func(p *Conv1d, n int64) { p.Width = n }),
			axisOf(types, func(c *Case, dt tensor.DType) { c.DType = dt }),
			paramAxis([]Layout{ChannelFirst, ChannelLast}, func(p *Conv1d, l Layout) { p.Layout = l }),
			{1 << 5, setFlags},
			paramAxis([]int64{1, 3, 64, 4096 + 32}, func(p *Conv1d, n int64) { p.Dim = n }),
			paramAxis([]int64{1, 2, 3, 8, 16, 32, 63, 64, 128, 129, 130, 151, 256, 372, 512, 784, 1024, 1134, 2048, 4096},
				func(p *Conv1d, n int64) { p.Seqlen = n }),
		},
		finish: func(c *Case, r *rand.Rand) {
			*c = With(*c, func(p *Conv1d) {
				if p.Batch = 2; p.Dim*p.Seqlen > largeSequence {
					p.Batch = 1
				}
				p.MixedLayout = r.IntN(8) == 0
			})
			c.WeightDType, c.BiasDType = types[r.IntN(len(types))], types[r.IntN(len(types))]
			if r.IntN(2) == 0 {
				c.GradDType = tensor.Float32
			}
			if channels := []int64{1, 1, 2, 3, 32, 0}[r.IntN(6)]; channels != 1 {
				*c = With(*c, func(p *Conv1d) { p.Groups = groupsOf(p.Dim, channels) })
			}
		},
		shrink: func(c *Case) {
			*c = With(*c, func(p *Conv1d) {
				if p.Groups > 1 {
					p.Groups = 16
				}
				p.Dim = 64
			})
		},
	}
}

// groupsOf returns the number of groups if each has the given number of channels. It returns 1, a group of all channels,
// if channels is 0 or does not divide dim.
func groupsOf(dim, channels int64) int64 {
	if channels == 0 || dim%channels != 0 {
		return 1
	}
	return dim / channels
}

// setFlags sets the i-th of 32 combinations of options.
func setFlags(c *Case, i int) {
	c.Slice = i&4 != 0
	*c = With(*c, func(p *Conv1d) {
		p.SiLU, p.NoBias, p.WithStates, p.WithSeqIdx = i&1 != 0, i&2 != 0, i&8 != 0, i&16 != 0
	})
}

// conv1dEdges are sizes of 0, rows shorter than the filter, and sizes one above
// what a block, a launch grid or a tile holds, each with several options.
func conv1dEdges() []Case {
	var cases []Case
	for _, s := range [][4]int64{
		{0, 3, 5, 4}, {2, 0, 5, 4}, {2, 3, 0, 4}, {2, 3, 0, 1}, {1, 1, 1, 1}, {2, 5, 2, 4}, {2, 5, 3, 9}, {2, 7, 70, 33}, {1, 2, 300, 257},
		{1, 65536 + 3, 5, 3}, {65536 + 3, 1, 5, 2}, {1, 1, 65536 + 5, 4}, {3, 33, 1025, 4}, {2, 3, 784, 1},
	} {
		for _, layout := range []Layout{ChannelFirst, ChannelLast} {
			for _, c := range edgeOptions() {
				c.Seed = uint64(len(cases))
				cases = append(cases, With(c, func(p *Conv1d) { p.Batch, p.Dim, p.Seqlen, p.Width, p.Layout = s[0], s[1], s[2], s[3], layout }))
			}
		}
	}
	return cases
}

// edgeOptions returns the options and types with which each edge size is tested.
func edgeOptions() []Case {
	return []Case{
		{},
		{Slice: true, DType: tensor.Float16, WeightDType: tensor.Float32, Params: Conv1d{SiLU: true, WithStates: true}},
		{DType: tensor.BFloat16, Params: Conv1d{SiLU: true, NoBias: true, WithSeqIdx: true}},
		{Slice: true, Params: Conv1d{EmptyBias: true, WithSeqIdx: true, WithStates: true}},
		{DType: tensor.BFloat16, WeightDType: tensor.Float16, GradDType: tensor.Float32, Params: Conv1d{WithInitial: true}},
		{DType: tensor.Float16, Params: Conv1d{WithFinal: true, NoBias: true, MixedLayout: true}},
	}
}
