//go:build linux

package fleet

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
)

const (
	manyPullsTime   = 2500 * time.Millisecond // goal for the last of 64 pulls of 5 MB at once on two processors
	manyPullsFactor = 3                       // limit of their processor time, in multiples of that of plain downloads; 0.8 to 1.5 are usual
)

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

// downloadPlainly does the least work of a pull on each node: it gets the layers, hashes them, writes them to a file, and hashes the file.
func downloadPlainly(t *testing.T, host string, layers []Layer, nodes int) {
	t.Helper()
	node := func(path string) error {
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		defer file.Close()
		for _, l := range layers {
			resp, err := http.Get("http://" + host + "/v2/aiter/kernels/blobs/" + l.Digest)
			if err != nil {
				return err
			}
			hash := sha256.New()
			_, err = io.Copy(io.MultiWriter(file, hash), resp.Body)
			if resp.Body.Close(); err != nil {
				return err
			}
			if got := fmt.Sprintf("sha256:%x", hash.Sum(nil)); got != l.Digest {
				return fmt.Errorf("%s: %s has the digest %s", resp.Request.URL, resp.Status, got)
			}
		}
		_, err = file.Seek(0, io.SeekStart)
		if err == nil {
			_, err = io.Copy(sha256.New(), file)
		}
		return err
	}
	var wg sync.WaitGroup
	for range nodes {
		path := filepath.Join(t.TempDir(), "layers")
		wg.Go(func() {
			if err := node(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestManyPulls starts 64 nodes at once that pull 5 MB each. On a slow or busy machine they may take longer than manyPullsTime. Then their
// processor time must be within a multiple of that of plain downloads.
func TestManyPulls(t *testing.T) {
	testenv.Long(t)
	f, r := prebuilt(t), startRegistry(t)
	const nodes = 64
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, noise(5<<20)), "")
	ref := parse(t, r.Host+"/aiter/kernels@"+rep.Digest)
	pid := r.Process().Pid
	start := processorTime(t, pid)
	downloadPlainly(t, r.Host, rep.Layers, nodes) // first, so that the pulls find both processes with the memory they need
	between := processorTime(t, pid)
	times := pullAtOnce(t, ref, nodes)
	plain, pulls := between-start, processorTime(t, pid)-between
	t.Logf("%d pulls of 5 MB at once: median %s, last %s; processor time %s, of plain downloads %s",
		nodes, times[nodes/2], times[nodes-1], pulls, plain)
	if last := times[nodes-1]; last > manyPullsTime && pulls > manyPullsFactor*plain {
		t.Errorf("the last pull took %s, more than %s, and the pulls used %s of processor time, more than %d times the %s of plain downloads",
			last, manyPullsTime, pulls, manyPullsFactor, plain)
	}
}
