//go:build linux

package fleet

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
)

// manyPullsTime is the goal for the last of 64 pulls of 5 MB at once on two processors.
const manyPullsTime = 2500 * time.Millisecond

// processorTime returns the processor time that this process and another one have used.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(data), ") ")
	var user, system int64
	const ticks = 100 // per second, on all architectures of Linux
	if fields := strings.Fields(after); len(fields) > 12 {
		user, _ = strconv.ParseInt(fields[11], 10, 64)
		system, _ = strconv.ParseInt(fields[12], 10, 64)
	}
	return time.Duration(own.Utime.Nano()+own.Stime.Nano()) + time.Duration(user+system)*time.Second/ticks
}

// TestManyPulls starts 64 nodes at once that pull 5 MB each. Other work on the machine may delay them; then their processor time, divided
// by two processors, must be within the limit.
func TestManyPulls(t *testing.T) {
	testenv.Long(t)
	f, r := prebuilt(t), startRegistry(t)
	const nodes = 64
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, noise(5<<20)), "")
	ref := parse(t, r.Host+"/aiter/kernels@"+rep.Digest)
	before := processorTime(t, r.Process().Pid)
	times := pullAtOnce(t, ref, nodes)
	each := (processorTime(t, r.Process().Pid) - before) / 2
	t.Logf("%d pulls of 5 MB at once: median %s, last %s; processor time %s on each of two", nodes, times[nodes/2], times[nodes-1], each)
	limit := manyPullsTime
	if testenv.Race { // which multiplies the processor time
		limit *= 4
	}
	if times[nodes-1] > limit && each > limit {
		t.Errorf("the last pull took %s, and the processor time is %s on each of two, want at most %s", times[nodes-1], each, limit)
	}
}
