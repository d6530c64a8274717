//go:build race

package testenv

// Race reports whether the race detector is on. A sync.Pool then loses things at
// random, so that allocations cannot be counted.
const Race = true
