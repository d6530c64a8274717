package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scale maps values to positions along an axis.
type scale struct {
	log      bool
	min, max float64 // values at the ends
	from, to float64 // positions of the ends, in CSS pixels
}

// logScale returns a logarithmic scale for values from lo to hi. Its ends are 1, 2 or 5 times
// a power of ten.
func logScale(lo, hi, from, to float64) scale {
	lo, hi = snapDown(lo*0.95), snapUp(hi*1.05)
	return scale{log: true, min: lo, max: hi, from: from, to: to}
}

// snapDown returns the largest of the numbers ..., 1, 2, 5, 10, ... that is at most v.
func snapDown(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	switch digit := v / power; {
	case digit >= 5:
		return 5 * power
	case digit >= 2:
		return 2 * power
	}
	return power
}

// snapUp returns the smallest of these numbers that is at least v.
func snapUp(v float64) float64 {
	down := snapDown(v)
	if down == v {
		return v
	}
	return snapDown(down * 2.6) // the next number: 1 to 2.6, 2 to 5.2, 5 to 13
}

// linearScale returns a linear scale from 0 to 6% above hi.
func linearScale(hi, from, to float64) scale {
	return scale{max: hi * 1.06, from: from, to: to}
}

// at returns the position of a value, rounded to a tenth of a pixel. Values outside of the
// scale are drawn at its ends.
func (s scale) at(v float64) float64 {
	return tenth(s.position(min(max(v, s.min), s.max)))
}

// position returns the position of a value, outside of the axis too.
func (s scale) position(v float64) float64 {
	share := (v - s.min) / (s.max - s.min)
	if s.log {
		share = math.Log(v/s.min) / math.Log(s.max/s.min)
	}
	return s.from + share*(s.to-s.from)
}

// ticks returns the values with text at the axis.
func (s scale) ticks() []float64 {
	if !s.log {
		return linearTicks(s.max)
	}
	steps := []float64{1, 2, 5}
	if s.max/s.min > 400 {
		steps = steps[:1]
	}
	var list []float64
	for power := math.Floor(math.Log10(s.min)); power <= math.Log10(s.max); power++ {
		for _, step := range steps {
			if v := step * math.Pow(10, power); v >= s.min*(1-1e-9) && v <= s.max*(1+1e-9) {
				list = append(list, v)
			}
		}
	}
	return list
}

// linearTicks returns four to eight round numbers.
func linearTicks(hi float64) []float64 {
	step := snapUp(hi / 8)
	var list []float64
	for i := 0.0; i*step <= hi; i++ {
		list = append(list, i*step)
	}
	return list
}

// formatBytes formats a number of bytes: "20 kB".
func formatBytes(v float64) string {
	return formatUnit(v, []string{"B", "kB", "MB", "GB", "TB"})
}

// formatTime formats a number of microseconds: "20 µs".
func formatTime(us float64) string { return formatUnit(us*1e3, []string{"ns", "µs", "ms", "s"}) }

// formatUnit writes v with three digits and a unit.
func formatUnit(v float64, units []string) string {
	unit := 0
	for v >= 999.5 && unit < len(units)-1 {
		v /= 1000
		unit++
	}
	return digits(v) + " " + units[unit]
}

// digits writes a number with three digits, or with all digits before the decimal
// point.
func digits(v float64) string {
	switch {
	case v >= 99.95:
		return grouped(int64(math.Round(v)))
	case v >= 9.995:
		return trimmed(fmt.Sprintf("%.1f", v))
	}
	return trimmed(fmt.Sprintf("%.2f", v))
}

// trimmed removes the last zeros after a decimal point: 2.50 is 2.5. s must have a decimal point.
func trimmed(s string) string { return strings.TrimRight(strings.TrimRight(s, "0"), ".") }

// grouped writes an integer with commas.
func grouped(v int64) string {
	s := strconv.FormatInt(v, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
