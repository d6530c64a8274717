package jit

import (
	"testing"

	"github.com/aiter-go/aiter/jit/target"
)

func TestSameTarget(t *testing.T) {
	for _, tt := range []struct {
		made, asked string
		want        bool
	}{
		{"gfx942", "gfx942", true},
		{"gfx90a", "gfx942", false},
		{"gfx942:xnack-", "gfx942:xnack-", true},
		{"gfx942:sramecc+:xnack-", "gfx942:xnack-:sramecc+", true},
		{"gfx942:xnack-", "gfx942", false},
		{"gfx942", "gfx942:xnack-", false},
		{"gfx942:xnack+", "gfx942:xnack-", false},
		{"gfx942:sramecc+:xnack-", "gfx942:xnack-", false},
		{"gfx90a:xnack-", "gfx942:xnack-", false},
		{"gfx1399", "gfx1399!", true}, // known only to the compiler
		{"gfx9-4-generic", "gfx942", false},
		{"", "gfx942", false},
	} {
		asked, err := target.Parse(tt.asked)
		if err != nil {
			t.Fatal(err)
		}
		if got := sameTarget(tt.made, asked); got != tt.want {
			t.Errorf("code for %q, requested %s: accepted %v, want %v", tt.made, asked, got, tt.want)
		}
	}
}
