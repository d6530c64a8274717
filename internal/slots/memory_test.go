package slots

import (
	"testing"
	"testing/fstest"
)

// TestAvailableMemory reads fake /proc and cgroup trees.
func TestAvailableMemory(t *testing.T) {
	const gib = 1 << 30
	meminfo := "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n"
	v2 := "0::/user.slice/job_7\n"
	v1 := "12:pids:/slurm\n5:cpu,cpuacct:/slurm\n4:memory:/slurm/job_7\n0::/\n"
	tests := []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing known", nil, 0},
		{"garbage", map[string]string{"proc/meminfo": "MemAvailable: lots kB\n", "proc/self/cgroup": "x\n0::/\n",
			"sys/fs/cgroup/memory.max": "x"}, 0},
		{"the machine's", map[string]string{"proc/meminfo": meminfo}, 8 * gib},
		{"no limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": v2, "sys/fs/cgroup/user.slice/job_7/memory.max": "max\n"},
			8 * gib},
		{"a namespace's root", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "4294967296\n", "sys/fs/cgroup/memory.current": "1073741824\n"}, 3 * gib},
		{"the process's own cgroup", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": v2,
			"sys/fs/cgroup/user.slice/job_7/memory.max": "4294967296\n", "sys/fs/cgroup/user.slice/job_7/memory.current": "1073741824\n"}, 3 * gib},
		{"a smaller limit of the parent", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": v2,
			"sys/fs/cgroup/user.slice/memory.max": "2147483648\n", "sys/fs/cgroup/user.slice/memory.current": "1073741824\n",
			"sys/fs/cgroup/user.slice/job_7/memory.max": "4294967296\n", "sys/fs/cgroup/user.slice/job_7/memory.current": "0\n"}, gib},
		{"another cgroup's limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": v2,
			"sys/fs/cgroup/user.slice/job_8/memory.max": "4096\n"}, 8 * gib},
		{"a cgroup outside the namespace", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../job_8\n",
			"sys/fs/cgroup/memory.max": "4294967296\n"}, 4 * gib},
		{"a page cache that can go", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": v2,
			"sys/fs/cgroup/user.slice/job_7/memory.max": "4294967296\n", "sys/fs/cgroup/user.slice/job_7/memory.current": "4294967296\n",
			"sys/fs/cgroup/user.slice/job_7/memory.stat": "anon 5\ninactive_file 3221225472\nactive_file 1\n"}, 3 * gib},
		{"used up", map[string]string{"proc/self/cgroup": v2, "sys/fs/cgroup/user.slice/job_7/memory.max": "4096\n",
			"sys/fs/cgroup/user.slice/job_7/memory.current": "8192\n"}, 1},
		{"version 1", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "2147483648",
			"sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes": "1073741824",
			"sys/fs/cgroup/memory/slurm/job_7/memory.stat":           "inactive_file 0\ntotal_inactive_file 536870912\n"}, gib + gib/2},
		{"version 1, a smaller limit of the parent", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/slurm/memory.limit_in_bytes":       "1073741824",
			"sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "2147483648"}, gib},
		{"version 1 in a container", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/docker/0123\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648", "sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824"}, gib},
		{"version 1 without a limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "9223372036854771712"}, 8 * gib},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := availableMemory(root); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	if DefaultJobs() < 1 {
		t.Error("got less than one job")
	}
}
