package profile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ImportError reports a file that is not a CSV file of a profiler, or a wrong value in one. Line and Column count from 1; 0 means the
// whole file, or the whole line. The column is that of the text, in bytes.
type ImportError struct {
	File         string
	Line, Column int
	Reason       string
	Err          error // of the CSV reader or of a number, or nil
}

func (e *ImportError) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
		if e.Column > 0 {
			at += ":" + strconv.Itoa(e.Column)
		}
	}
	return at + ": " + e.Reason
}

// Unwrap returns the cause.
func (e *ImportError) Unwrap() error { return e.Err }

// MaxRows is the largest number of rows of a file.
const MaxRows = 1_000_000

// table reads the rows of a CSV file by the names of its columns.
type table struct {
	file    string
	in      *csv.Reader
	columns map[string]int
	row     []string
	rows    int
	skipped int // lines before the heading
}

// newTable reads the heading.
func newTable(file string, text io.Reader, skipped int) (*table, error) {
	t := &table{file: file, in: csv.NewReader(text), columns: map[string]int{}, skipped: skipped}
	t.in.ReuseRecord = true
	t.in.LazyQuotes = false
	heading, err := t.in.Read()
	if errors.Is(err, io.EOF) {
		return nil, &ImportError{File: file, Reason: "the file is empty; expected the CSV output of rocprofv3 or ncu"}
	}
	if err != nil {
		return nil, t.syntax(err)
	}
	for i, name := range heading {
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff")
		}
		if _, twice := t.columns[name]; twice {
			return nil, t.wrong(i, fmt.Sprintf("two columns have the name %q", name), nil)
		}
		t.columns[name] = i
	}
	if t.has("Metric Name") {
		t.in.FieldsPerRecord = -1 // rows of ncu end after their last value
	}
	return t, nil
}

// has reports whether the file has all of the columns.
func (t *table) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { _, ok := t.columns[n]; return !ok })
}

// next reads a row. It returns false at the end.
func (t *table) next() (bool, error) {
	row, err := t.in.Read()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, t.syntax(err)
	}
	if t.rows++; t.rows > MaxRows {
		return false, &ImportError{File: t.file, Reason: fmt.Sprintf("expected at most %d rows", MaxRows)}
	}
	t.row = row
	return true, nil
}

// syntax returns the error of a file that is not CSV.
func (t *table) syntax(err error) error {
	var bad *csv.ParseError
	if !errors.As(err, &bad) {
		return fmt.Errorf("read %s: %w", t.file, err)
	}
	return &ImportError{t.file, bad.Line + t.skipped, bad.Column, "not CSV: " + bad.Err.Error(), err}
}

// wrong returns the error of a wrong field in the row that was read last.
func (t *table) wrong(field int, reason string, err error) error {
	line, column := t.in.FieldPos(field)
	return &ImportError{t.file, line + t.skipped, column, reason, err}
}

// text returns the field of a column, "" if the file has no such column.
func (t *table) text(column string) string {
	i, ok := t.columns[column]
	if !ok || i >= len(t.row) {
		return ""
	}
	return t.row[i]
}

// integer returns a whole number of 0 or more.
func (t *table) integer(column string) (int64, error) {
	word := t.text(column)
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 {
		return 0, t.wrong(t.columns[column], fmt.Sprintf("%s is %q; expected a whole number of 0 or more", column, word), err)
	}
	return n, nil
}

// number returns a number. The text may have commas between thousands.
func (t *table) number(column string) (float64, error) {
	word := t.text(column)
	v, err := strconv.ParseFloat(strings.ReplaceAll(word, ",", ""), 64)
	if err != nil || v != v || v > 1e300 || v < -1e300 {
		return 0, t.wrong(t.columns[column], fmt.Sprintf("%s is %q; expected a number", column, word), err)
	}
	return v, nil
}

// times returns the start and the length of a row with time stamps in nanoseconds.
func (t *table) times() (start, length time.Duration, err error) {
	from, err := t.integer("Start_Timestamp")
	if err != nil {
		return 0, 0, err
	}
	to, err := t.integer("End_Timestamp")
	if err != nil {
		return 0, 0, err
	}
	if to < from {
		return 0, 0, t.wrong(t.columns["End_Timestamp"], fmt.Sprintf("End_Timestamp %d is before Start_Timestamp %d", to, from), nil)
	}
	return time.Duration(from), time.Duration(to - from), nil
}
