package optests

import (
	"hash/fnv"
	"math/rand/v2"
)

// random returns the source of one argument's values. It depends on the argument's
// name, so that one more argument does not change the values of the others.
func random(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// randomNormals are values of the standard normal distribution.
func randomNormals(_ Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = r.NormFloat64()
	}
}
