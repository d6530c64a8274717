package jit

import (
	"time"

	"golang.org/x/sys/unix"
)

// instant is a moment by two clocks: the one with which the kernel stamps
// files (its last tick, some milliseconds behind the clock on the wall), and
// one that nobody can set.
type instant struct {
	stamp  time.Time
	steady time.Duration
}

// now reads both clocks within one tick, so that their distance changes only
// when somebody sets the time.
func now() instant {
	for range 100 {
		before := steady()
		i := instant{stamp(), steady()}
		if i.steady == before {
			return i
		}
	}
	return instant{stamp(), steady()}
}

func stamp() time.Time { return time.Unix(0, coarse(unix.CLOCK_REALTIME_COARSE)) }

func steady() time.Duration { return time.Duration(coarse(unix.CLOCK_MONOTONIC_COARSE)) }

// coarse reads a clock that every Linux has, in nanoseconds.
func coarse(clock int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts)
	return ts.Nano()
}

// setBackSince says whether the clock that stamps files was set back since an
// earlier instant: what was written in between may look older than it is.
func (i instant) setBackSince(before instant) bool {
	return i.stamp.Sub(before.stamp) < i.steady-before.steady
}

// nextTick waits until the kernel stamps files with a new time, and returns
// it: what was written before has an earlier one.
func nextTick(clock func() instant) instant {
	before := clock()
	for range 100 {
		time.Sleep(time.Millisecond)
		if now := clock(); now.stamp.After(before.stamp) {
			return now
		}
	}
	return clock() // it stands still, or was set back
}
