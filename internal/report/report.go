// Package report stores measurements of operators in files (JSON, CSV) and shows them
// as one self-contained HTML page: charts of bandwidth and latency over size, or of time and
// fraction of a copy over a parameter, with the device's limits and, for a comparison, the measurements of an older file.
package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// File contains the measurements of one device.
type File struct {
	Device string `json:"device"`
	// CopyGBps is the bandwidth of a large copy in the device's memory, read and write
	// together, in 10^9 bytes per second.
	CopyGBps float64 `json:"copy_gbps"`
	// VectorGFlops and MatrixGFlops are the peaks of the device's arithmetic: float32 in the vector units, 16-bit element
	// types in the matrix units, in 10^9 operations per second. They are 0 if they are unknown.
	VectorGFlops float64 `json:"vector_gflops,omitempty"`
	MatrixGFlops float64 `json:"matrix_gflops,omitempty"`
	Origin       Origin  `json:"origin,omitzero"`

	Rows []Row `json:"rows"`
}

// Row is the measurement of one operator on one case. Times are in microseconds,
// bandwidths in 10^9 bytes per second.
type Row struct {
	Op, Target, DType      string
	Values                 Values // sizes and options of the case
	MedianUS, P20US, P80US float64
	GBps                   float64
	// CopyFraction is the time of a copy of the same bytes divided by MedianUS.
	CopyFraction float64
	// GFlops is the arithmetic rate of the median call in 10^9 operations per second, 0 for an operator without a count of
	// its arithmetic. The fractions are this rate divided by the peaks of the file, 0 if they are unknown or do not apply.
	GFlops, VectorFraction, MatrixFraction float64
}

// Bytes returns the number of bytes that the call moved, computed from its bandwidth.
func (r Row) Bytes() float64 { return r.GBps * r.MedianUS * 1e3 }

// key identifies a measured case. It does not contain the target, because the older file may
// be of another device.
func (r Row) key() string { return fmt.Sprintf("%q %q %s", r.Op, r.DType, r.Values.key()) }

// FormatError reports a file that does not contain measurements.
type FormatError struct {
	Row    int // from 0; -1 for the file as a whole
	Reason string
	Err    error // error of the JSON decoder, or nil
}

func (e *FormatError) Error() string {
	reason := e.Reason
	if e.Err != nil {
		reason += ": " + e.Err.Error()
	}
	if e.Row < 0 {
		return "not a file of measurements: " + reason
	}
	return fmt.Sprintf("not a file of measurements: row %d: %s", e.Row, reason)
}

// Unwrap returns the JSON decoder's error.
func (e *FormatError) Unwrap() error { return e.Err }

const (
	// MaxFile is the largest file that Read accepts, in bytes.
	MaxFile = 16 << 20
	// MaxRows is the largest number of rows that Read accepts.
	MaxRows = 20_000
)

// Read reads a file of aiterctl bench --json. The errors are *FormatError and those of
// r.
func Read(r io.Reader) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read measurements: %w", err)
	}
	if len(data) > MaxFile {
		return nil, &FormatError{Row: -1, Reason: fmt.Sprintf("expected at most %d bytes", MaxFile)}
	}
	f := &struct {
		File
		Rows rows `json:"rows"` // replaces File.Rows
	}{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, &FormatError{Row: -1, Reason: "expected JSON of aiterctl bench --json", Err: err}
	}
	f.File.Rows = f.Rows
	return &f.File, f.File.check()
}

// rows limits the number of rows while it reads them. An empty row takes 3 bytes in a file
// and more than 100 in memory.
type rows []Row

// UnmarshalJSON implements [json.Unmarshaler].
func (list *rows) UnmarshalJSON(text []byte) error {
	in := json.NewDecoder(bytes.NewReader(text))
	if start, err := in.Token(); err != nil || start != json.Delim('[') {
		return fmt.Errorf("rows are %.20q; expected a list", text)
	}
	for *list = (*list)[:0]; in.More(); {
		if len(*list) == MaxRows {
			return fmt.Errorf("expected at most %d rows", MaxRows)
		}
		var r Row
		if err := in.Decode(&r); err != nil {
			return err
		}
		*list = append(*list, r)
	}
	if *list == nil {
		*list = rows{}
	}
	return nil
}

// check returns an error for measurements that cannot be drawn.
func (f *File) check() error {
	if min(f.CopyGBps, f.VectorGFlops, f.MatrixGFlops) < 0 || f.Rows == nil {
		return &FormatError{Row: -1, Reason: `expected "rows", and a "copy_gbps" and peaks of 0 or more`}
	}
	if !printable(f.Device) {
		return &FormatError{Row: -1, Reason: fmt.Sprintf("the device's name %q has a control character", f.Device)}
	}
	if o := f.Origin; !printable(o.Date + o.Host + o.Driver + o.Compiler + o.Program + o.Commit) {
		return &FormatError{Row: -1, Reason: fmt.Sprintf("the origin %q has a control character", o)}
	}
	for i, r := range f.Rows {
		if !printable(r.Op + r.Target + r.DType + r.Values.text()) {
			return &FormatError{Row: i, Reason: "a name has a control character"}
		}
		if r.Op == "" || r.MedianUS <= 0 || r.GBps < 0 || r.P20US < 0 || r.P80US < 0 {
			return &FormatError{Row: i, Reason: `expected "op", a "median_us" above 0, and no negative times`}
		}
	}
	return nil
}

// printable reports whether a name has no control characters.
func printable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) })
}

// Of returns the file with the measurements of one operator.
func (f *File) Of(op string) *File {
	part := *f
	part.Rows = []Row{}
	for _, r := range f.Rows {
		if r.Op == op {
			part.Rows = append(part.Rows, r)
		}
	}
	return &part
}

// Names lists the sizes and options of all rows, in the order of the rows.
func (f *File) Names() []string {
	var names []string
	for _, r := range f.Rows {
		for _, v := range r.Values {
			if !slices.Contains(names, v.Name) {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// cells returns the row's values in CSV.
func (r Row) cells(names []string) []string {
	cells := []string{r.Op, r.Target, r.DType}
	for _, name := range names {
		cells = append(cells, fmt.Sprint(cmp.Or(r.Values.Of(name), any(""))))
	}
	for _, v := range r.measured() {
		cells = append(cells, strconv.FormatFloat(v, 'f', -1, 64))
	}
	return cells
}

// WriteCSV writes a line of column names, as in the JSON, then a line for each row.
func (f *File) WriteCSV(w io.Writer) error {
	out, names := csv.NewWriter(w), f.Names()
	// The writer keeps its first error, which Error returns.
	_ = out.Write(slices.Concat([]string{"op", "target", "dtype"}, names, measuredNames()))
	for _, r := range f.Rows {
		_ = out.Write(r.cells(names))
	}
	out.Flush()
	return out.Error()
}

// Change is one row with the row of the older file for the same case.
type Change struct {
	Row         int // of the first file, from 0
	Now, Before Row
	Speedup     float64 // the median time of Before divided by that of Now
}

// Changes pairs the rows of two files for the same case, in the order of now. before may be
// nil.
func Changes(now, before *File) []Change {
	old := map[string]Row{}
	if before != nil {
		for _, r := range before.Rows {
			old[r.key()] = r
		}
	}
	var list []Change
	for i, r := range now.Rows {
		if b, ok := old[r.key()]; ok {
			list = append(list, Change{i, r, b, b.MedianUS / r.MedianUS})
		}
	}
	return list
}

// GeoMean returns the geometric mean of the speed-ups, 0 for an empty list.
func GeoMean(list []Change) float64 {
	sum := 0.0
	for _, c := range list {
		sum += math.Log(c.Speedup)
	}
	if len(list) == 0 {
		return 0
	}
	return math.Exp(sum / float64(len(list)))
}
