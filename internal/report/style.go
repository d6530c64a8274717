package report

import (
	"fmt"
	"html/template"
	"io"
	"time"
)

// WritePage writes an HTML page: a template with its content.
func WritePage(w io.Writer, text string, content any) error {
	t, err := template.New("page").Parse(text)
	if err != nil {
		return fmt.Errorf("template of the page: %w", err)
	}
	if err := t.Execute(w, content); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// Style returns the style sheet of the page, for other pages: colors for light and dark, text, facts, legends and tables.
func Style() string { return chartStyle + pageStyle }

// Duration formats a time with three digits: "20 µs".
func Duration(d time.Duration) string { return formatTime(float64(d) / 1e3) }

// Bytes formats a number of bytes: "20 kB".
func Bytes(n int64) string { return formatBytes(float64(n)) }

// Percent formats a fraction: "12%", "0.5%".
func Percent(v float64) string { return percent(v) }

// Number formats a number with three digits, or with all digits before the decimal point.
func Number(v float64) string { return digits(v) }
