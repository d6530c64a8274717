package spelling_test

import (
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/spelling"
)

func TestOneOf(t *testing.T) {
	many := slices.Repeat([]string{"a"}, 22)
	for want, words := range map[string][]string{
		"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"},
		"a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a and 2 more": many,
	} {
		if got := spelling.OneOf(words); got != want {
			t.Errorf("OneOf(%q) = %q, want %q", words, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files"} {
		if got := spelling.Count(n, "file"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
