package cache

import (
	"bytes"
	"math"
	"os"
	"sync"
	"testing"
)

func TestCountsOfSeveralProcessesAddUp(t *testing.T) {
	d := open(t)
	const writers, each = 8, 400 // about 150 kB each
	long := string(bytes.Repeat([]byte("r"), 300))
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			process, err := Open(d.path, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			for range each {
				process.Count(Count{Event: UnitHit, N: 2, Seconds: 0.5}, Count{Event: UnitMiss, Cause: long, N: 1, Seconds: 0.25})
			}
		})
	}
	wg.Wait()
	got := d.Counts()
	// On a busy machine a process may give up waiting for the file, and loses its counts.
	const all = writers * each
	if len(got) != 2 || got[1].N > all || got[1].N < all*9/10 {
		t.Fatalf("%+v, want %d", got, all)
	}
	n := got[1].N
	if got[0].N != 2*n || math.Abs(got[0].Seconds-float64(n)/2) > 1e-6 || math.Abs(got[1].Seconds-float64(n)/4) > 1e-6 {
		t.Errorf("lines were torn or counted twice: %+v", got)
	}
	info, err := os.Stat(d.countsPath())
	if err != nil || info.Size() > 2*maxCounts {
		t.Errorf("the file was never shortened: %v, %v", info, err)
	}
	s, err := d.Stats()
	if err != nil || s.Hits != 2*n || s.Misses != n || math.Abs(s.Saved-float64(n)/2) > 1e-6 {
		t.Errorf("stats: %d hits, %d misses, %g s, %v", s.Hits, s.Misses, s.Saved, err)
	}
}

func TestCountsDoNotWaitForAStoppedProcess(t *testing.T) {
	d := open(t)
	d.Count(Count{Event: UnitHit, N: 1})
	f := d.openCounts(2) // LOCK_EX, like a process that is stopped while it sums up
	defer f.Close()
	d.Count(Count{Event: UnitHit, N: 1}) // must return
	if got := d.Counts(); len(got) != 1 || got[0].N != 1 {
		t.Errorf("%+v", got)
	}
}

func FuzzParseCounts(f *testing.F) {
	for _, s := range []string{"", "1\t2.5\tunit hit\t\n", "1\t2.5\tunit hit\t", "x\ty\tz\tw\n", "1\tNaN\ta\tb\n", "-1\t0\ta\tb\n",
		"1\t1e400\ta\tb\n", "9223372036854775807\t1\ta\tb\n", "\x00\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		counts := parseCounts(data)
		var b bytes.Buffer
		for _, c := range counts {
			if c.N < 0 || math.IsNaN(c.Seconds) || math.IsInf(c.Seconds, 0) {
				t.Errorf("%+v", c)
			}
			appendCount(&b, c)
		}
		if again := parseCounts(b.Bytes()); len(again) > len(counts) {
			t.Errorf("%d lines became %d", len(counts), len(again))
		}
	})
}
