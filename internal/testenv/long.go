package testenv

import "testing"

// Long skips a test that takes many seconds if -short is given. `make test` gives -short; `make test-race` and `make test-kernels` do
// not.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes many seconds; `make test SHORT=` runs it")
	}
}

// SkipRace skips a test of compiled kernels under the race detector, which checks Go code only.
// `make test` runs it, or `make test-kernels` if it is long; a test checks the list in the Makefile.
func SkipRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("tests no Go code; `make test`, or `make test-kernels`, runs it")
	}
}

// Sample returns every n-th element of a list of cases, beginning with the first, if -short is given or under the race
// detector. Otherwise, as in `make test-kernels`, it returns the whole list.
func Sample[T any](list []T, n int) []T {
	if !testing.Short() && !Race {
		return list
	}
	var some []T
	for i := 0; i < len(list); i += n {
		some = append(some, list[i])
	}
	return some
}
