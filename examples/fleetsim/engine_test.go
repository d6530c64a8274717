package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b), 1) }

func check(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !near(got, want) {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

// transfers runs flows of the sizes between links and returns when each ended.
func transfers(e *engine, paths [][2]*link, sizes []float64) []float64 {
	ends := make([]float64, len(paths))
	for i, p := range paths {
		e.net.start(p[0], p[1], sizes[i], func() { ends[i] = e.now })
	}
	e.run()
	return ends
}

// The times of transfers are those of the formulas of processor sharing.
func TestTransfers(t *testing.T) {
	fast := func() *link { return &link{capacity: 1000} }
	t.Run("one", func(t *testing.T) {
		ends := transfers(&engine{}, [][2]*link{{{capacity: 10}, fast()}}, []float64{50})
		check(t, "end", ends[0], 5)
	})
	t.Run("equal ones on a link", func(t *testing.T) {
		up, paths, sizes := &link{capacity: 10}, [][2]*link{}, []float64{}
		for range 20 {
			paths, sizes = append(paths, [2]*link{up, fast()}), append(sizes, 50)
		}
		for _, end := range transfers(&engine{}, paths, sizes) {
			check(t, "end", end, 100)
		}
		check(t, "bytes of the link", up.carried, 1000)
	})
	t.Run("unequal ones", func(t *testing.T) { // 10 and 30 at rates 5 and 5 until 2, then 10
		up := &link{capacity: 10}
		ends := transfers(&engine{}, [][2]*link{{up, fast()}, {up, fast()}}, []float64{10, 30})
		check(t, "short", ends[0], 2)
		check(t, "long", ends[1], 4)
	})
	t.Run("a slow node leaves its share to the others", func(t *testing.T) { // rates 2 and 8, then 2
		up := &link{capacity: 10}
		ends := transfers(&engine{}, [][2]*link{{up, &link{capacity: 2}}, {up, fast()}}, []float64{40, 80})
		check(t, "slow", ends[0], 20)
		check(t, "fast", ends[1], 10)
	})
	t.Run("a later one", func(t *testing.T) { // 10 for 2 s, then 5 and 5: the first ends at 2+20/5
		e, up := &engine{}, &link{capacity: 10}
		var second float64
		e.after(2, func() { e.net.start(up, fast(), 40, func() { second = e.now }) })
		ends := transfers(e, [][2]*link{{up, fast()}}, []float64{40})
		check(t, "first", ends[0], 6)
		check(t, "second", second, 8)
	})
	t.Run("a stopped one", func(t *testing.T) { // 5 and 5 until 2, then 10
		e, up := &engine{}, &link{capacity: 10}
		f := e.net.start(up, fast(), 1000, func() { t.Error("the stopped transfer has ended") })
		moved := 0.0
		e.after(2, func() { moved = e.net.stop(e.now, f) })
		ends := transfers(e, [][2]*link{{up, fast()}}, []float64{30})
		check(t, "other", ends[0], 4)
		check(t, "moved", moved, 10)
		check(t, "bytes of the link", up.carried, 40)
	})
}

// Rates are max-min fair: no link carries more than its capacity, and each flow has a full link on which no other is faster.
func TestMaxMinFairness(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var n network
		links := make([]*link, 2+random.IntN(20))
		for i := range links {
			links[i] = &link{capacity: 1 + 99*random.Float64()}
		}
		for range 1 + random.IntN(60) {
			a := random.IntN(len(links) - 1)
			n.start(links[a], links[a+1+random.IntN(len(links)-1-a)], 1, nil)
		}
		for range random.IntN(len(n.flows)) {
			n.stop(0, n.flows[random.IntN(len(n.flows))])
		}
		n.share()
		for _, f := range n.flows {
			if !limited(f) {
				t.Fatalf("no full link limits a flow of rate %g among %d flows", f.rate, len(n.flows))
			}
		}
	}
}

func limited(f *flow) bool {
	for _, l := range f.links {
		sum, fastest := 0.0, 0.0
		for _, other := range l.flows {
			sum, fastest = sum+other.rate, max(fastest, other.rate)
		}
		if sum > l.capacity*(1+1e-9) {
			return false
		}
		if near(sum, l.capacity) && f.rate >= fastest*(1-1e-9) {
			return true
		}
	}
	return false
}

// Slots are a first-come queue, and events of one time run in the order in which they were added.
func TestSlots(t *testing.T) {
	for _, c := range []struct {
		servers, jobs int
		want          float64
	}{{1, 5, 15}, {2, 5, 9}, {4, 5, 6}, {8, 5, 3}} {
		e, s := &engine{}, &slots{free: c.servers}
		var order []int
		for i := range c.jobs {
			s.acquire(func() {
				e.after(3, func() {
					order = append(order, i)
					s.release()
				})
			})
		}
		e.run()
		check(t, "end", e.now, c.want)
		for i, got := range order {
			if got != i {
				t.Errorf("%d servers: jobs ended in the order %v", c.servers, order)
				break
			}
		}
		if s.free != c.servers {
			t.Errorf("%d of %d servers are free at the end", s.free, c.servers)
		}
	}
}
