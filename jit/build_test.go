package jit

import (
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/toolchain"
)

func TestRankOfPasses(t *testing.T) {
	var ranks []int
	for i := range 3 {
		ranks = append(ranks, rank(i, 3, toolchain.Host), rank(i, 3, toolchain.Device))
	}
	if want := []int{5, 0, 4, 1, 3, 2}; !slices.Equal(ranks, want) {
		t.Errorf("ranks %v, want %v: device passes first, host passes from the last one on", ranks, want)
	}
}
