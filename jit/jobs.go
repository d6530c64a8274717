package jit

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// compilerMemory is what one compiler run may need, in bytes: clang with HIP's
// headers and a few kernels stays below it.
const compilerMemory = 1 << 30

// DefaultJobs returns how many compilers may run at a time: one a processor
// that this process may use (cgroup limits included), less when the memory
// would not hold them.
func DefaultJobs() int {
	jobs := runtime.GOMAXPROCS(0)
	if mem := AvailableMemory(); mem > 0 {
		jobs = min(jobs, int(mem/compilerMemory))
	}
	return max(jobs, 1)
}

// AvailableMemory returns the bytes that can be had before the machine or the
// process's control group runs out, 0 when nobody knows.
func AvailableMemory() int64 { return availableMemory(os.ReadFile) }

func availableMemory(read func(string) ([]byte, error)) int64 {
	avail := field(read, "/proc/meminfo", "MemAvailable:") << 10
	for _, limit := range []int64{
		cgroupRoom(read, "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
		cgroupRoom(read, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat"),
	} {
		if limit > 0 && (avail == 0 || limit < avail) {
			avail = limit
		}
	}
	return avail
}

// field returns the number after a word at the start of a line, 0 if there is
// none.
func field(read func(string) ([]byte, error), file, word string) int64 {
	data, err := read(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == word {
			n, _ := strconv.ParseInt(f[1], 10, 64) // 0 when it is no number
			return n
		}
	}
	return 0
}

// cgroupRoom is limit less use, 0 where there is no limit. Pages of files that
// the kernel can drop are no use.
func cgroupRoom(read func(string) ([]byte, error), limitFile, usedFile, statFile string) int64 {
	limit, used := readInt(read, limitFile), readInt(read, usedFile)
	const unlimited = 1 << 60 // version 1 writes a huge number for no limit
	if limit <= 0 || limit > unlimited {
		return 0
	}
	return max(limit-used+field(read, statFile, "inactive_file"), 1)
}

func readInt(read func(string) ([]byte, error), file string) int64 {
	data, err := read(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
