package report_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/report"
)

// endless is a reader that repeats a text without end.
type endless struct{ text string }

func (e endless) Read(p []byte) (int, error) { return copy(p, e.text), nil }

// TestReadLimits checks that Read rejects files that are too large or invalid before they
// take much memory.
func TestReadLimits(t *testing.T) {
	for name, in := range map[string]io.Reader{
		"endless":        endless{strings.Repeat(" ", 512)},
		"empty rows":     strings.NewReader(`{"rows": [` + strings.Repeat("{},", 5_000_000) + `{}]}`),
		"nested":         strings.NewReader(strings.Repeat("[", 10<<20)),
		"no list":        strings.NewReader(`{"rows": {"a": [` + strings.Repeat("{},", 1_000_000) + `{}]}}`),
		"escape in name": strings.NewReader(`{"device": "\u001b[31m", "rows": []}`),
		"bidi in row":    strings.NewReader(`{"device": "d", "rows": [{"op": "f\u202e", "median_us": 1}]}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := report.Read(in)
		runtime.ReadMemStats(&after)
		var format *report.FormatError
		if !errors.As(err, &format) {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
			t.Errorf("%s took %d bytes", name, took)
		}
	}
}
