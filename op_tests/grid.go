package optests

import (
	"iter"
	"math/rand/v2"
)

// Grid is a set of cases: every combination of the values of its axes.
type Grid struct {
	axes []axis
	// finish sets what depends on the other values, or on r, which the case's seed
	// determines.
	finish func(c *Case, r *rand.Rand)
	// shrink makes a case smaller if it has too many elements for a sample.
	shrink func(c *Case)
}

// axis is one dimension of a grid.
type axis struct {
	len int
	set func(c *Case, i int)
}

// axisOf returns an axis with these values.
func axisOf[T any](values []T, set func(c *Case, v T)) axis {
	return axis{len(values), func(c *Case, i int) { set(c, values[i]) }}
}

// paramAxis returns an axis with these values of a parameter.
func paramAxis[P Params, T any](values []T, set func(p *P, v T)) axis {
	return axisOf(values, func(c *Case, v T) { *c = With(*c, func(p *P) { set(p, v) }) })
}

// Len returns the number of cases.
func (g Grid) Len() int {
	n := 1
	for _, a := range g.axes {
		n *= a.len
	}
	return n
}

// at returns the case with these indices along the axes.
func (g Grid) at(indices []int, seed uint64) Case {
	c := Case{Seed: seed}
	for a, i := range indices {
		g.axes[a].set(&c, i)
	}
	g.finish(&c, random(seed, "case"))
	return c
}

// All yields every case, always in the same order; the last axis varies fastest.
func (g Grid) All() iter.Seq[Case] {
	return func(yield func(Case) bool) {
		indices := make([]int, len(g.axes))
		for n := range g.Len() {
			rest := n
			for a := len(g.axes) - 1; a >= 0; a-- {
				indices[a], rest = rest%g.axes[a].len, rest/g.axes[a].len
			}
			if !yield(g.at(indices, uint64(n))) {
				return
			}
		}
	}
}

// Sample yields n cases spread over the grid: along each axis the values follow
// one another in random order, so that each occurs equally often. A case of more
// than limit elements is made smaller.
func (g Grid) Sample(n int, limit int64, seed uint64) iter.Seq[Case] {
	r := rand.New(rand.NewPCG(seed, 0))
	return func(yield func(Case) bool) {
		if g.Len() == 0 {
			return
		}
		orders, indices := make([][]int, len(g.axes)), make([]int, len(g.axes))
		for i := range n {
			for a, axis := range g.axes {
				if i%axis.len == 0 {
					orders[a] = r.Perm(axis.len)
				}
				indices[a] = orders[a][i%axis.len]
			}
			c := g.at(indices, seed+uint64(i))
			if c.Elements() > limit {
				g.shrink(&c)
			}
			if !yield(c) {
				return
			}
		}
	}
}
