package optests

import (
	"hash/fnv"
	"math/rand/v2"
)

// random is the source of one argument's values. It depends on the argument's
// name, so that passing one more argument changes no other.
func random(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// randomNormals draws from the standard normal distribution.
func randomNormals(_ Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = r.NormFloat64()
	}
}

// randomSequences cuts each row of (batch, seqlen) into runs of one sequence number
// each. About one run in four is padding, numbered below zero, and a sequence may
// go on after it.
func randomSequences(c Case, r *rand.Rand, values []float64) {
	for b := range c.Batch {
		row := values[b*c.Seqlen : (b+1)*c.Seqlen]
		for at, number := 0, 0; at < len(row); number++ {
			id := number
			if r.IntN(4) == 0 {
				id = -1 - r.IntN(2)
				number -= r.IntN(3)
			}
			end := min(len(row), at+1+r.IntN(len(row)/3+int(c.Width)))
			for ; at < end; at++ {
				row[at] = float64(id)
			}
		}
	}
}
