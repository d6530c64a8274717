package deps

import "time"

// Instant is a time on two clocks: the clock from which the kernel takes the times of files,
// and a clock that cannot be set. Both advance in ticks of some milliseconds.
type Instant struct {
	Stamp  time.Time
	steady time.Duration
	exact  time.Time // not before any time of a file so far: since Linux 6.13 these may lie between two ticks
}

// Now reads both clocks within one tick, so that their difference changes only if the time
// is set.
func Now() Instant {
	for range 100 {
		before := steady()
		i := Instant{stamp(), steady(), time.Now()}
		if i.steady == before {
			return i
		}
	}
	return Instant{stamp(), steady(), time.Now()}
}

// setBackSince reports whether the clock that stamps files was set back since an
// earlier instant. A file that was written in between may look older than it is.
func (i Instant) setBackSince(before Instant) bool {
	return i.Stamp.Sub(before.Stamp) < i.steady-before.steady
}

// NextTick waits until the kernel stamps files with a new time and returns that time.
// Files that were written earlier have an earlier time. A tick that comes late has the time at
// which it was due, so that the first tick may be before the exact time of such a file.
func NextTick(clock func() Instant) Instant {
	before := clock()
	for range 100 {
		time.Sleep(time.Millisecond)
		if now := clock(); now.Stamp.After(before.Stamp) && now.Stamp.After(before.exact) {
			return now
		}
	}
	return clock() // the clock stands still or was set back
}
