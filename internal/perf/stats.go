package perf

import (
	"math"
	"slices"
	"time"
)

// Stats summarizes the times of equal calls, in microseconds.
type Stats struct {
	Mean, Min, Median, P20, P80 float64
	Calls                       int
}

// NewStats summarizes times. Without times all fields are 0.
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

// quantile returns the q-quantile of sorted values, with linear interpolation.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// bandwidth returns the bandwidth of calls that move that many bytes, at the median
// time, in 10^9 bytes per second. It is 0 if the median is below the clock's resolution.
func (s Stats) bandwidth(bytes int64) float64 {
	if s.Median <= 0 {
		return 0
	}
	return float64(bytes) / s.Median / 1e3
}
