package jit

import (
	"os"
	"testing"
)

func TestAvailableMemory(t *testing.T) {
	const gib = 1 << 30
	meminfo := "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n"
	tests := []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing known", nil, 0},
		{"garbage", map[string]string{"/proc/meminfo": "MemAvailable: lots kB\n", "/sys/fs/cgroup/memory.max": "x"}, 0},
		{"the machine's", map[string]string{"/proc/meminfo": meminfo}, 8 * gib},
		{"no limit", map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": "max\n"}, 8 * gib},
		{"a limit", map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": "4294967296\n", "/sys/fs/cgroup/memory.current": "1073741824\n"}, 3 * gib},
		{"a page cache that can go", map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": "4294967296\n", "/sys/fs/cgroup/memory.current": "4294967296\n",
			"/sys/fs/cgroup/memory.stat": "anon 5\ninactive_file 3221225472\nactive_file 1\n"}, 3 * gib},
		{"used up", map[string]string{"/sys/fs/cgroup/memory.max": "4096\n", "/sys/fs/cgroup/memory.current": "8192\n"}, 1},
		{"version 1", map[string]string{"/sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648", "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824"}, gib},
		{"version 1 without a limit", map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 8 * gib},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			read := func(name string) ([]byte, error) {
				if text, ok := tt.files[name]; ok {
					return []byte(text), nil
				}
				return nil, os.ErrNotExist
			}
			if got := availableMemory(read); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	if DefaultJobs() < 1 {
		t.Error("no job at all")
	}
}
