package perf

import (
	"math"
	"slices"
	"time"
)

// Stats sums up the times of equal calls, in microseconds.
type Stats struct {
	Mean, Min, Median, P20, P80 float64
	Calls                       int
}

// NewStats sums up times; of none, all is 0.
func NewStats(times []time.Duration) Stats {
	if len(times) == 0 {
		return Stats{}
	}
	us := make([]float64, len(times))
	sum := 0.0
	for i, d := range times {
		us[i] = microseconds(d)
		sum += us[i]
	}
	slices.Sort(us)
	return Stats{
		Mean: sum / float64(len(us)), Min: us[0], Calls: len(us),
		Median: quantile(us, 0.5), P20: quantile(us, 0.2), P80: quantile(us, 0.8),
	}
}

// quantile is the value below which a share q of sorted values lies, between two
// of them in proportion.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// rate is the bandwidth at which so many bytes move in the median time, in GB/s.
// A median below the clock's resolution counts as no bandwidth.
func (s Stats) rate(bytes int64) float64 {
	if s.Median <= 0 {
		return 0
	}
	return float64(bytes) / s.Median / 1e3
}
