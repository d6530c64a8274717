package tensor

import (
	"math"

	"golang.org/x/sys/unix"
)

// checkMemory refuses sizes beyond the machine's memory, because Go ends the process at such an
// allocation. It ignores the memory that other programs use. Without information about memory
// there is no limit.
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
