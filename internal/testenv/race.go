//go:build race

package testenv

// Race reports whether the race detector is on. A sync.Pool then drops items at random, so that
// tests cannot count allocations.
const Race = true
