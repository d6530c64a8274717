package cache

import (
	"errors"
	"testing"
	"time"
)

func TestParseLimits(t *testing.T) {
	for s, want := range map[string]int64{"1": 1, "500MB": 500e6, "5 GB": 5e9, "4GiB": 4 << 30, "2K": 2000, "1.5kB": 1500, "": 0,
		"0": 0, "-1GB": 0, "5XB": 0, "GB": 0, "1e30GB": 0} {
		got, err := ParseSize(s)
		var bad *LimitError
		if got != want || (want == 0) != errors.As(err, &bad) {
			t.Errorf("size %q: %d, %v; want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]time.Duration{"90m": 90 * time.Minute, "30d": 30 * day, "2w": 14 * day, "0.5d": 12 * time.Hour,
		"": 0, "0d": 0, "-3h": 0, "d": 0, "1e-30d": 0, "1e30w": 0, "NaNd": 0} {
		got, err := ParseAge(s)
		var bad *LimitError
		if got != want || (want == 0) != errors.As(err, &bad) {
			t.Errorf("age %q: %s, %v; want %s", s, got, err, want)
		}
	}
}

func FuzzParseLimits(f *testing.F) {
	for _, s := range []string{"500MB", "4GiB", "30d", "2w", "90m", "", "9223372036854775807", "1e308w", "NaNd", "1e-30d", "é", "1 é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); (err == nil) != (n > 0) {
			t.Errorf("size %q: %d, %v", s, n, err)
		}
		if d, err := ParseAge(s); (err == nil) != (d > 0) {
			t.Errorf("age %q: %s, %v", s, d, err)
		}
	})
}
