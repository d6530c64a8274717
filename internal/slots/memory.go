package slots

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// compilerMemory is the memory that one compiler run may need, in bytes: clang
// with HIP's headers and a few kernels stays below it.
const compilerMemory = 1 << 30

// DefaultJobs returns the number of compilers that may run at a time: one for
// each processor that this process may use (cgroup limits included), fewer when
// the available memory is too small for them.
func DefaultJobs() int {
	jobs := runtime.GOMAXPROCS(0)
	if mem := AvailableMemory(); mem > 0 {
		jobs = min(jobs, int(mem/compilerMemory))
	}
	return max(jobs, 1)
}

// AvailableMemory returns the number of bytes that this process can allocate
// before it reaches the limit of the machine or of one of its cgroups. It returns
// 0 if that is unknown.
func AvailableMemory() int64 { return availableMemory(os.DirFS("/")) }

func availableMemory(root fs.FS) int64 {
	least := field(root, "proc/meminfo", "MemAvailable:") << 10
	data, _ := fs.ReadFile(root, "proc/self/cgroup") // without the file there is no limit
	for line := range strings.Lines(string(data)) {
		// "hierarchy:controllers:path"; version 2 has no controllers.
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(fields) != 3:
		case fields[1] == "":
			least = smaller(least, version2().leastOnPath(root, fields[2]))
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			least = smaller(least, version1().leastOnPath(root, fields[2]))
		}
	}
	return least
}

// smaller returns the smaller of two limits; 0 means no limit.
func smaller(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// hierarchy names the folder and the files of a version of cgroups.
type hierarchy struct {
	mount, limit, usage string
	inactive            string // field of memory.stat that covers nested cgroups too
}

func version1() hierarchy {
	return hierarchy{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
}

func version2() hierarchy {
	return hierarchy{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
}

// leastOnPath returns the least free memory, in bytes, of a cgroup and of its
// ancestors, 0 if none has a limit. In a container the container's own cgroup may be
// the root. Folders that do not exist have no limit.
func (h hierarchy) leastOnPath(root fs.FS, cgroup string) int64 {
	var least int64
	for cgroup = path.Clean("/" + cgroup); ; cgroup = path.Dir(cgroup) {
		least = smaller(least, h.free(root, path.Join(h.mount, cgroup)))
		if cgroup == "/" {
			return least
		}
	}
}

// free returns the limit of one cgroup minus its usage in bytes, at least 1. It
// returns 0 if the cgroup has no limit. Inactive pages of files do not count as
// usage, because the kernel can drop them.
func (h hierarchy) free(root fs.FS, dir string) int64 {
	limit := number(root, path.Join(dir, h.limit))
	const unlimited = 1 << 60 // version 1 writes a larger number for no limit
	if limit <= 0 || limit > unlimited {
		return 0
	}
	used := number(root, path.Join(dir, h.usage)) - field(root, path.Join(dir, "memory.stat"), h.inactive)
	return max(limit-used, 1)
}

// field returns the number after a word at the start of a line, 0 if there is
// none.
func field(root fs.FS, file, word string) int64 {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == word {
			n, _ := strconv.ParseInt(f[1], 10, 64) // 0 if it is not a number
			return n
		}
	}
	return 0
}

// number returns the number in a file, 0 if there is none, as for "max".
func number(root fs.FS, file string) int64 {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
