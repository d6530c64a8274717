package tensor

import (
	"math"

	"golang.org/x/sys/unix"
)

// checkMemory refuses what this machine cannot hold at all: Go ends the process
// when such memory is asked for. What other programs use is not looked at, and a
// machine that does not tell its memory sets no limit.
func checkMemory(n int64) error {
	if there := physicalMemory(); n > there {
		return &MemoryError{Size: n, Memory: there}
	}
	return nil
}

// physicalMemory is the machine's memory and swap in bytes.
func physicalMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	unit := uint64(max(info.Unit, 1))
	return int64(min((uint64(info.Totalram)+uint64(info.Totalswap))*unit, math.MaxInt64))
}
