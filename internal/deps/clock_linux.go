package deps

import (
	"time"

	"golang.org/x/sys/unix"
)

func stamp() time.Time { return time.Unix(0, coarse(unix.CLOCK_REALTIME_COARSE)) }

func steady() time.Duration { return time.Duration(coarse(unix.CLOCK_MONOTONIC_COARSE)) }

// coarse reads a clock in nanoseconds. All Linux kernels have the coarse clocks.
func coarse(clock int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts)
	return ts.Nano()
}
