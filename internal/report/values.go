package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Values are the sizes and options of a case, in the order of the columns.
type Values []Value

// Value is a size or an option: an int64, a float64, a string or a bool.
type Value struct {
	Name  string
	Value any
}

// Of returns the value of that name, nil if there is none.
func (v Values) Of(name string) any {
	if i := slices.IndexFunc(v, func(x Value) bool { return x.Name == name }); i >= 0 {
		return v[i].Value
	}
	return nil
}

// key identifies the values in any order.
func (v Values) key() string {
	words := make([]string, 0, len(v))
	for _, x := range v {
		words = append(words, fmt.Sprintf("%q=%v", x.Name, x.Value))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// text returns all names and values as one text.
func (v Values) text() string {
	var b strings.Builder
	for _, x := range v {
		fmt.Fprint(&b, x.Name, x.Value)
	}
	return b.String()
}

// MarshalJSON writes an object in the order of the values.
func (v Values) MarshalJSON() ([]byte, error) {
	var objects []any
	for _, x := range v {
		objects = append(objects, map[string]any{x.Name: x.Value})
	}
	return JoinObjects(objects...)
}

// JoinObjects writes several values, each of which is an object in JSON, as one object.
func JoinObjects(objects ...any) ([]byte, error) {
	var members [][]byte
	for _, o := range objects {
		var b bytes.Buffer
		out := json.NewEncoder(&b)
		out.SetEscapeHTML(false)
		if err := out.Encode(o); err != nil {
			return nil, err
		}
		text := bytes.TrimSpace(b.Bytes())
		if inner := text[1 : len(text)-1]; len(inner) > 0 {
			members = append(members, inner)
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}")), nil
}

// rowStart and rowTimes are a row in JSON before and after its values.
type rowStart struct {
	Op     string `json:"op"`
	Target string `json:"target"`
	DType  string `json:"dtype"`
}

type rowTimes struct {
	MedianUS     float64 `json:"median_us"`
	P20US        float64 `json:"p20_us"`
	P80US        float64 `json:"p80_us"`
	GBps         float64 `json:"gbps"`
	CopyFraction float64 `json:"copy_fraction"`

	GFlops         float64 `json:"gflops,omitempty"`
	VectorFraction float64 `json:"vector_fraction,omitempty"`
	MatrixFraction float64 `json:"matrix_fraction,omitempty"`
}

// measuredNames returns the names of the columns of CSV after the sizes and options.
func measuredNames() []string {
	return []string{"median_us", "p20_us", "p80_us", "gbps", "copy_fraction", "gflops", "vector_fraction", "matrix_fraction"}
}

// measured returns the values of these columns.
func (r Row) measured() []float64 {
	return []float64{r.MedianUS, r.P20US, r.P80US, r.GBps, r.CopyFraction, r.GFlops, r.VectorFraction, r.MatrixFraction}
}

// MarshalJSON writes the sizes and options as keys of the row.
func (r Row) MarshalJSON() ([]byte, error) {
	times := rowTimes{r.MedianUS, r.P20US, r.P80US, r.GBps, r.CopyFraction, r.GFlops, r.VectorFraction, r.MatrixFraction}
	return JoinObjects(rowStart{r.Op, r.Target, r.DType}, r.Values, times)
}

// maxValues is the largest number of sizes and options of a row.
const maxValues = 32

// UnmarshalJSON reads a row. A key that is not in every row is a size or an option.
func (r *Row) UnmarshalJSON(text []byte) error {
	var start rowStart
	var times rowTimes
	for _, part := range []any{&start, &times} {
		if err := json.Unmarshal(text, part); err != nil {
			return err
		}
	}
	*r = Row{
		Op: start.Op, Target: start.Target, DType: start.DType,
		MedianUS: times.MedianUS, P20US: times.P20US, P80US: times.P80US, GBps: times.GBps, CopyFraction: times.CopyFraction,
		GFlops: times.GFlops, VectorFraction: times.VectorFraction, MatrixFraction: times.MatrixFraction,
	}
	return r.readValues(text)
}

// readValues reads the other keys of an object in their order.
func (r *Row) readValues(text []byte) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if _, err := in.Token(); err != nil { // {
		return err
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return err
		}
		var v any
		if err := in.Decode(&v); err != nil {
			return err
		}
		if r.isColumn(name.(string)) {
			continue
		}
		if v, err = plain(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(r.Values) == maxValues {
			return fmt.Errorf("expected at most %d sizes and options", maxValues)
		}
		r.Values = append(r.Values, Value{name.(string), v})
	}
	return nil
}

func (r *Row) isColumn(name string) bool {
	return slices.Contains([]string{"op", "target", "dtype"}, name) || slices.Contains(measuredNames(), name)
}

// plain converts a decoded JSON value to a string, a bool, an int64 or a float64.
func plain(v any) (any, error) {
	switch v := v.(type) {
	case string, bool:
		return v, nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		return v.Float64()
	}
	return nil, fmt.Errorf("expected a number, a word, true or false, got %T", v)
}
