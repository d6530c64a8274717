package cache

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits bound the growth of a cache. 0 means no limit.
type Limits struct {
	Size  int64         `json:"size"`  // bytes of all files
	Count int           `json:"count"` // artifacts
	Age   time.Duration `json:"age"`   // since an artifact was last used; nanoseconds in JSON
}

// DefaultLimits returns the limits without a setting. They contain no age, because this machine
// may be unable to build an artifact again.
func DefaultLimits() Limits { return Limits{Size: 10e9} }

const day = 24 * time.Hour

// LimitError reports a size, an age or a number with invalid syntax.
type LimitError struct{ What, Value, Want string }

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s %q: expected %s", e.What, e.Value, e.Want)
}

// ParseAge reads a duration in Go's syntax, or a number of days or weeks:
// "36h", "30d", "2w". The error is a [*LimitError].
func ParseAge(s string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": day, "w": 7 * day} {
		number, ok := strings.CutSuffix(s, suffix)
		if n, err := strconv.ParseFloat(number, 64); ok && err == nil && n*float64(unit) >= 1 && n*float64(unit) < math.MaxInt64 {
			return time.Duration(n * float64(unit)), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return d, nil
	}
	return 0, &LimitError{"age", s, "a time above 0 such as 90m, 36h, 30d or 2w"}
}

// ParseSize reads a number of bytes. "500MB" and "500M" are 500e6 bytes, "4GiB" is 4<<30 bytes.
// The error is a [*LimitError].
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRightFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	unit, ok := sizeUnit(strings.ToLower(strings.TrimSpace(s[len(digits):])))
	n, err := strconv.ParseFloat(digits, 64)
	if bytes := n * unit; ok && err == nil && bytes >= 1 && bytes < math.MaxInt64 {
		return int64(bytes), nil
	}
	return 0, &LimitError{"size", s, "a number of bytes above 0 such as 500MB, 5GB or 4GiB"}
}

// sizeUnit returns the bytes of a unit in lower case: "kb", "kib", "k", "b" or "".
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
