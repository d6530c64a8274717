package main

import (
	"math/rand/v2"
	"slices"
)

// fleet is one run: nodes that start and need modules, and a server that all of them reach.
type fleet struct {
	engine
	config
	modules []module
	random  *rand.Rand
	nodes   []*node
	up      link // of the server, to the nodes
	down    link // of the server, from the nodes

	serving int // requests that the server is answering
	totals  totals
}

// totals are counted while a fleet runs.
type totals struct {
	compiles int
	seconds  float64 // of compilers
	refusals int     // answers 429
	faults   int     // nodes that have become faulty
	between  float64 // bytes that nodes send to each other
}

// node is a machine with processes that all need all modules.
type node struct {
	up, down  link
	compilers slots
	downloads slots
	unpacker  slots
	faulty    bool // an earlier request has failed, so the node sends no requests to the server
	uploads   int  // pieces that it is sending to other nodes

	wanted []*want // by module, if its processes share a cache
	order  []int   // modules in the order in which the node requests them
	open   int     // processes that are not ready
	ready  float64
}

// want is a module that processes of a node wait for.
type want struct {
	ready bool
	then  []func()
}

// strategy is a way to obtain modules.
type strategy interface {
	// obtain obtains module m for a node, and then calls done.
	obtain(n *node, m int, done func())
}

// newFleet makes the nodes of a run, which start at random times within the spread.
func newFleet(c config) *fleet {
	f := &fleet{config: c, modules: c.units(), random: rand.New(rand.NewPCG(uint64(c.seed), 0))}
	f.net.slack = c.slack
	f.up.capacity, f.down.capacity = c.uplink, c.uplink
	for range c.nodes {
		n := &node{compilers: slots{free: c.slots}, downloads: slots{free: c.downloads}, unpacker: slots{free: 1}, open: c.processes}
		n.up.capacity, n.down.capacity = c.nic, c.nic
		n.wanted = make([]*want, len(f.modules))
		for m := range f.modules {
			n.order = append(n.order, m)
		}
		if c.shuffled {
			f.random.Shuffle(len(n.order), func(i, k int) { n.order[i], n.order[k] = n.order[k], n.order[i] })
		}
		f.nodes = append(f.nodes, n)
	}
	return f
}

// simulate runs the fleet with a strategy.
func (f *fleet) simulate(s strategy) result {
	for _, n := range f.nodes {
		begin := f.random.Float64() * f.spread
		for range f.processes {
			f.after(begin+f.random.Float64()*f.processSpread, func() { f.process(s, n) })
		}
	}
	f.run()
	return f.result()
}

// process requests all modules. It is ready when it has them.
func (f *fleet) process(s strategy, n *node) {
	missing := len(n.order)
	for _, m := range n.order {
		f.request(s, n, m, func() {
			if missing--; missing > 0 {
				return
			}
			if n.open--; n.open == 0 {
				n.ready = f.now
			}
		})
	}
}

// request obtains a module: once for all processes of the node if they share a cache, and otherwise for each process.
func (f *fleet) request(s strategy, n *node, m int, done func()) {
	if !f.shared {
		s.obtain(n, m, done)
		return
	}
	w := n.wanted[m]
	if w == nil {
		w = &want{then: []func(){done}}
		n.wanted[m] = w
		s.obtain(n, m, func() {
			w.ready = true
			for _, then := range w.then {
				then()
			}
		})
		return
	}
	if w.ready {
		done()
		return
	}
	w.then = append(w.then, done)
}

// result is a row of the table of results. Times are seconds.
type result struct {
	Name        string  `json:"name"`
	Last        float64 `json:"last_ready_s"`
	Median      float64 `json:"median_ready_s"`
	Compiles    int     `json:"compiles"`
	Hours       float64 `json:"compiler_hours"`
	FromServer  float64 `json:"bytes_from_server"`
	ToServer    float64 `json:"bytes_to_server"`
	Between     float64 `json:"bytes_between_nodes"`
	Refusals    int     `json:"refusals"`
	FaultyNodes int     `json:"faulty_nodes"`
}

func (f *fleet) result() result {
	var times []float64
	for _, n := range f.nodes {
		times = append(times, n.ready)
	}
	slices.Sort(times)
	return result{
		Last: times[len(times)-1], Median: times[len(times)/2],
		Compiles: f.totals.compiles, Hours: f.totals.seconds / 3600,
		FromServer: f.up.carried, ToServer: f.down.carried, Between: f.totals.between,
		Refusals: f.totals.refusals, FaultyNodes: f.totals.faults,
	}
}
