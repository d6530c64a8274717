package tensor

import (
	"math"

	"golang.org/x/sys/unix"
)

// physicalMemory returns the machine's memory and swap in bytes, math.MaxInt64 if the system does
// not report them.
func physicalMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	unit := uint64(max(info.Unit, 1))
	return int64(min((uint64(info.Totalram)+uint64(info.Totalswap))*unit, math.MaxInt64))
}
