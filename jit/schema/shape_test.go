package schema_test

import (
	"errors"
	"testing"

	"github.com/aiter-go/aiter/jit/schema"
)

func TestParseShape(t *testing.T) {
	for text, want := range map[string]string{
		"(B, D, L)":           "(B, D, L)",
		"( B ,D , W - 1 )":    "(B, D, W-1)",
		"(B+1)":               "(B+1)",
		"(..., D)":            "(..., D)",
		"(...)":               "(...)",
		"()":                  "()",
		"(D,)":                "(D)",
		"(3, rows)":           "(3, rows)",
		"(B, D) or (B, D, L)": "(B, D) or (B, D, L)",
		"(D) or (0)":          "(D) or (0)",
	} {
		got, err := schema.ParseShape(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "B, D", "(B", "(B, ..., D)", "(-1)", "(B, )D", "(W*2)", "(W-)", "(1W)", "(, B)", "(...) or (B)", "(B) or", "(é)",
	} {
		var bad *schema.ShapeError
		if got, err := schema.ParseShape(text); !errors.As(err, &bad) {
			t.Errorf("%q: got %q, %v; want a ShapeError", text, got, err)
		}
	}
}

func FuzzParseShape(f *testing.F) {
	f.Add("(B, D, W-1) or (..., D)")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schema.ParseShape(text)
		if err != nil {
			return
		}
		again, err := schema.ParseShape(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q is %q, read back as %q, %v", text, s, again, err)
		}
	})
}

func TestLetter(t *testing.T) {
	for _, c := range []struct {
		shape     string
		dimension int
		want      string
	}{{"(G, W)", 1, "W"}, {"(D) or (G, W-1)", 0, "D"}, {"(G, W-1)", 1, "W-1"}, {"(3, W)", 0, ""}, {"(..., D)", 0, ""}, {"(D)", 1, ""}} {
		s, err := schema.ParseShape(c.shape)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Letter(c.dimension); got != c.want {
			t.Errorf("%s, dimension %d: %q, want %q", c.shape, c.dimension, got, c.want)
		}
	}
	if got := (schema.Shape{}).Letter(0); got != "" {
		t.Errorf("no shape: %q", got)
	}
}
