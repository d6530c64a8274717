package schema

import (
	"strconv"
	"strings"
)

// Value is the default of an argument: None, an int64, float64, bool or string,
// or a list of these. The zero Value is None.
type Value struct{ v any }

// None returns the Value of an optional argument that is not given.
func None() Value { return Value{} }

// ValueOf returns the Value of a scalar.
func ValueOf[T int64 | float64 | bool | string](v T) Value { return Value{v} }

// IsNone reports whether v is None.
func (v Value) IsNone() bool { return v.v == nil }

// Any returns nil for None, else an int64, float64, bool, string or []any of
// these. The caller must not change the slice.
func (v Value) Any() any { return v.v }

// String returns the value as written in a schema.
func (v Value) String() string {
	switch x := v.v.(type) {
	case int64:
		return strconv.FormatInt(x, 10)
	case float64:
		return formatFloat(x)
	case bool:
		if x {
			return "True"
		}
		return "False"
	case string:
		return quote(x)
	case []any:
		items := make([]string, len(x))
		for i, e := range x {
			items[i] = Value{e}.String()
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return "None"
}

// formatFloat returns a float with a point or an exponent, so that it differs from an integer: 1.0, not 1.
func formatFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
