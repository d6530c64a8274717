package aitercmd

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestParseAge(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"": 0, "90m": 90 * time.Minute, "36h": 36 * time.Hour, "30d": 30 * 24 * time.Hour, "0.5d": 12 * time.Hour, "2w": 14 * 24 * time.Hour,
	} {
		if got, err := parseAge(in); err != nil || got != want {
			t.Errorf("parseAge(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"0", "0d", "-1d", "30", "d", "soon", "NaNd", "Infw", "1e300d", "-5m"} {
		if got, err := parseAge(in); err == nil {
			t.Errorf("parseAge(%q) = %v, want an error", in, got)
		}
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"": 0, "1": 1, "512B": 512, "1kB": 1000, "500MB": 5e8, "500M": 5e8, "5GB": 5e9, "1.5 GB": 15e8, "4GiB": 4 << 30, "1ki": 1024, "2TB": 2e12,
	} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"0", "-1", "GB", "5XB", "5iB", "5GBB", "NaN", "1e30", "99999999TB", "much"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("parseSize(%q) = %v, want an error", in, got)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 1_500_000: "1.5 MB", 5e9: "5.0 GB", 3e15: "3000.0 TB"} {
		if got := formatSize(n); got != want {
			t.Errorf("formatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFormatAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		3 * time.Second: "3 s", 90 * time.Second: "1 min", 26 * time.Hour: "26 h", 3 * 24 * time.Hour: "3 days",
	} {
		if got := formatAge(d); got != want {
			t.Errorf("formatAge(%v) = %q, want %q", d, got, want)
		}
	}
}

// The help wraps flags to the width of the terminal, and does not wrap them for files and pipes.
func TestHelpWidth(t *testing.T) {
	for _, width := range []int{0, 80} {
		var help bytes.Buffer
		root := newRoot(&app{program: Program{Name: aiterctl}, width: width, getenv: func(string) string { return "" }})
		root.SetArgs([]string{"build", "--help"})
		root.SetOut(&help)
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		_, flags, _ := strings.Cut(help.String(), "\nFlags:\n")
		longest := 0
		for line := range strings.Lines(flags) {
			longest = max(longest, len(strings.TrimRight(line, "\n")))
		}
		if wrapped := longest <= 80; wrapped != (width > 0) || flags == "" {
			t.Errorf("width %d: the longest line has %d characters", width, longest)
		}
	}
}
