package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Shape declares the shapes that a tensor argument may have.
type Shape struct{ Alternatives [][]Dim }

// Dim declares one dimension or, with Rest, any number of leading dimensions.
type Dim struct {
	Name   string // "D"; stands for the same size in all arguments of a call; "": the size is Offset
	Offset int64  // added to the size of Name: -1 in "W-1"
	Rest   bool   // "...": the dimensions before all others, which have the same sizes in all arguments of a call
}

func (d Dim) String() string {
	switch {
	case d.Rest:
		return "..."
	case d.Name == "":
		return strconv.FormatInt(d.Offset, 10)
	case d.Offset != 0:
		return fmt.Sprintf("%s%+d", d.Name, d.Offset)
	}
	return d.Name
}

// String returns the shape as [ParseShape] reads it.
func (s Shape) String() string {
	var list []string
	for _, dims := range s.Alternatives {
		words := make([]string, len(dims))
		for i, d := range dims {
			words[i] = d.String()
		}
		list = append(list, "("+strings.Join(words, ", ")+")")
	}
	return strings.Join(list, " or ")
}

// Letter returns the name of a dimension in the first alternative, such as "W" for dimension 1 of "(G, W)". It returns "" if the
// dimension has no name, or if there is no such dimension.
func (s Shape) Letter(dimension int) string {
	if len(s.Alternatives) == 0 {
		return ""
	}
	dims := s.Alternatives[0]
	if dimension < 0 || dimension >= len(dims) || hasRest(dims) || dims[dimension].Name == "" {
		return ""
	}
	return dims[dimension].String()
}

// ShapeError reports a text that is not a valid shape.
type ShapeError struct{ Text, Expected string }

func (e *ShapeError) Error() string {
	return fmt.Sprintf("bad shape %q: expected %s, such as \"(B, D, W-1)\", \"(..., D)\" or \"(B, D) or (B, D, L)\"", e.Text, e.Expected)
}

// ParseShape reads the shapes of an argument: dimensions in parentheses, each a name, a name plus or
// minus a number, a number, or "..." as the first one. "or" separates alternatives. The error is a
// *ShapeError.
func ParseShape(text string) (Shape, error) {
	var s Shape
	for one := range strings.SplitSeq(text, " or ") {
		one = strings.TrimSpace(one)
		inside, ok := strings.CutPrefix(one, "(")
		inside, closed := strings.CutSuffix(inside, ")")
		if !ok || !closed {
			return Shape{}, &ShapeError{text, "dimensions in parentheses"}
		}
		dims := []Dim{}
		for word := range strings.SplitSeq(inside, ",") {
			word = strings.ReplaceAll(strings.TrimSpace(word), " ", "")
			if word == "" && (len(dims) > 0 || strings.TrimSpace(inside) == "") {
				continue // "(D,)" and "()"
			}
			d, ok := parseDim(word)
			if !ok || d.Rest && len(dims) > 0 {
				return Shape{}, &ShapeError{text, fmt.Sprintf("a dimension in place of %q", word)}
			}
			dims = append(dims, d)
		}
		if slices.ContainsFunc(s.Alternatives, func(other []Dim) bool { return hasRest(other) || hasRest(dims) }) {
			return Shape{}, &ShapeError{text, "alternatives without \"...\""}
		}
		s.Alternatives = append(s.Alternatives, dims)
	}
	return s, nil
}

func hasRest(dims []Dim) bool { return len(dims) > 0 && dims[0].Rest }

func parseDim(word string) (Dim, bool) {
	if word == "..." {
		return Dim{Rest: true}, true
	}
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		return Dim{Offset: n}, n >= 0
	}
	name, offset := word, int64(0)
	if at := strings.IndexAny(word, "+-"); at > 0 {
		n, err := strconv.ParseInt(word[at:], 10, 32)
		if err != nil {
			return Dim{}, false
		}
		name, offset = word[:at], n
	}
	valid := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_'
	}) && unicode.IsLetter(rune(name[0]))
	return Dim{Name: name, Offset: offset}, valid
}
