package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// parseAge reads a duration in Go's syntax, or a number of days or weeks:
// "36h", "30d", "2w". "" is 0, which is no condition.
func parseAge(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	for suffix, unit := range map[string]time.Duration{"d": day, "w": 7 * day} {
		number, ok := strings.CutSuffix(s, suffix)
		if n, err := strconv.ParseFloat(number, 64); ok && err == nil && n > 0 && n*float64(unit) < math.MaxInt64 {
			return time.Duration(n * float64(unit)), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return d, nil
	}
	return 0, usagef("age %q: expected a time above 0 such as 90m, 36h, 30d or 2w", s)
}

// parseSize reads a number of bytes: "500MB" and "500M" count in thousands,
// "4GiB" in 1024s. "" is 0, which is no limit.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	digits := strings.TrimRightFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	unit, ok := sizeUnit(strings.ToLower(strings.TrimSpace(s[len(digits):])))
	n, err := strconv.ParseFloat(digits, 64)
	if bytes := n * unit; ok && err == nil && bytes >= 1 && bytes < math.MaxInt64 {
		return int64(bytes), nil
	}
	return 0, usagef("size %q: expected a number of bytes above 0 such as 500MB, 5GB or 4GiB", s)
}

func sizeUnit(word string) (float64, bool) {
	const prefixes = "kmgt"
	word = strings.TrimSuffix(word, "b")
	if word == "" {
		return 1, true
	}
	power := float64(1 + strings.IndexByte(prefixes, word[0]))
	switch {
	case power == 0:
		return 0, false
	case word[1:] == "i":
		return math.Pow(1024, power), true
	case word[1:] == "":
		return math.Pow(1000, power), true
	}
	return 0, false
}

// sizeWords is a number of bytes for people.
func sizeWords(n int64) string {
	f, unit := float64(n), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}
