package main

import (
	"strings"
	"testing"
)

// exact is the default configuration with four modules at a time, without random times, latencies and approximations: 20 nodes,
// 5 modules of 1 GB, links of 1 GB/s.
func exact(change func(*config)) config {
	var c config
	c.assumptions()
	c.nodes, c.spread, c.processSpread, c.latency, c.discovery, c.slack, c.downloads = 20, 0, 0, 0, 0, 0, 4
	c.modules = []module{{"a", 60, 0}, {"b", 20, 0}, {"c", 10, 0}, {"d", 10, 0}, {"e", 5, 0}}
	c.moduleSize, c.uplink, c.nic, c.unpackRate, c.slots = 1e9, 1e9, 1e9, 1e15, 2
	if change != nil {
		change(&c)
	}
	return c
}

// few is the default configuration with four modules at a time, fewer nodes and a slower server.
func few(change func(*config)) config {
	var c config
	c.assumptions()
	c.nodes, c.uplink, c.downloads = 40, gigabit, 4
	if change != nil {
		change(&c)
	}
	return c
}

func named(t *testing.T, name string) scenario {
	t.Helper()
	for _, s := range scenarios() {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no scenario %q", name)
	return scenario{}
}

// Scenarios for which there is a formula give its result.
func TestFormulas(t *testing.T) {
	one := func(c *config) { c.modules = c.modules[:1] }
	for _, c := range []struct {
		scenario string
		change   func(*config)
		last     float64
		compiles int
		server   float64 // GB
	}{
		{"each node alone, one compiler at a time", nil, 105, 100, 0},
		{"each node alone", nil, 60, 100, 0}, // the time of the longest module: the others compile at the same time
		{"each node alone", func(c *config) { c.modules = c.modules[1:] }, 25, 80, 0},
		{"each node alone", func(c *config) { c.shared, c.processes = false, 3 }, 165, 300, 0}, // a third of 60 s begins at 105
		{"shared cache without single flight", nil, 60, 100, 0},
		{"shared cache with single flight", func(c *config) { c.nodes = 1 }, 60, 5, 0},
		{"shared cache with single flight", one, 80, 1, 19}, // 60, 1 for the upload, 19 nodes
		{"set from a registry", nil, 100, 0, 100},           // 20 nodes, 5 GB, 1 GB/s
		{"set from a registry", func(c *config) { c.nic = 4e7 }, 125, 0, 100},
		{"set from a registry", func(c *config) { c.latency = 2 }, 104, 0, 100},      // of four layers together, and of the fifth
		{"set from a registry", func(c *config) { c.unpackRate = 1e9 }, 101, 0, 100}, // the fifth layer arrives at 100
		{"set from a registry, all targets", nil, 200, 0, 200},
		{"set in an image, one layer with all targets", func(c *config) { c.unpackRate = 1e9 }, 210, 0, 200},
		{"set from a registry, nodes give up after 20 s", nil, 80, 100, 20}, // no node has a layer after 20 s
		// each layer takes 19 s
		{"set from a registry, nodes give up after 20 s", func(c *config) { c.downloads, c.nodes = 1, 19 }, 95, 0, 95},
		{"set from a registry, 500 connections, then status 429", nil, 100, 0, 100},
		{"nodes share layers, all in the same order", nil, 100, 0, 100}, // no node has a layer before the others
		{"nodes share layers, in random orders", func(c *config) { c.nodes = 1 }, 5, 0, 5},
		{"nodes share pieces of layers", func(c *config) { c.nodes = 1 }, 5, 0, 5},
	} {
		r := named(t, c.scenario).run(exact(c.change))
		if !near(r.Last, c.last) || r.Compiles != c.compiles || !near(r.FromServer, c.server*1e9) {
			t.Errorf("%s: %.6g s, %d compiles, %.6g GB; want %g, %d, %g", c.scenario, r.Last, r.Compiles, r.FromServer/1e9,
				c.last, c.compiles, c.server)
		}
	}
}

// Every node gets each module once: from a compile, the server or another node.
func TestConservation(t *testing.T) {
	for _, s := range scenarios() {
		c := few(nil)
		r := s.run(c)
		if s.adjust != nil {
			s.adjust(&c)
		}
		if r.FaultyNodes > 0 && r.Compiles == 0 || r.FaultyNodes == 0 && r.Refusals > 0 {
			t.Errorf("%s: %+v", s.name, r)
		}
		if strings.Contains(s.name, "give up") || c.divided {
			continue // nodes also get bytes of layers that they do not complete, and parts differ in size
		}
		layers, whole := 0, 0.0
		for _, m := range c.units() {
			layers, whole = layers+c.nodes, whole+float64(c.nodes)*m.bytes
		}
		if got, want := r.FromServer+r.Between, whole*float64(layers-r.Compiles)/float64(layers); !near(got, want) {
			t.Errorf("%s: %g bytes, want %g", s.name, got, want)
		}
		if strings.HasPrefix(s.name, "nodes share") && (r.Between == 0 || r.Compiles > 0) && !strings.Contains(s.name, "same order") {
			t.Errorf("%s: %+v", s.name, r)
		}
	}
}

// A seed determines the result.
func TestSeeds(t *testing.T) {
	for _, s := range scenarios() {
		first, again := s.run(few(nil)), s.run(few(nil))
		if first != again {
			t.Errorf("%s: %+v, then %+v", s.name, first, again)
		}
		if other := s.run(few(func(c *config) { c.seed = 2 })); other.Last == first.Last {
			t.Errorf("%s: the last node is ready after %g s with another seed too", s.name, other.Last)
		}
	}
}

// Better machines and fewer bytes do not delay a fleet, where nodes do not compete in random orders.
func TestMonotony(t *testing.T) {
	for _, s := range scenarios() {
		before := s.run(few(nil))
		for name, change := range map[string]func(*config){
			"uplink":      func(c *config) { c.uplink *= 2 },
			"nic":         func(c *config) { c.nic *= 2 },
			"module-size": func(c *config) { c.moduleSize /= 2 },
			"nodes":       func(c *config) { c.nodes /= 2 },
			"unpack":      func(c *config) { c.unpackRate *= 2 },
		} {
			if r := s.run(few(change)); r.Last > before.Last*1.02+1 {
				t.Errorf("%s: %g s with better %s, %g s without", s.name, r.Last, name, before.Last)
			}
		}
	}
}

// The approximation of --slack changes results little.
func TestSlack(t *testing.T) {
	for _, s := range scenarios() {
		exact := s.run(few(func(c *config) { c.slack = 0 }))
		if r := s.run(few(nil)); r.Last < exact.Last*0.98 || r.Last > exact.Last*1.02 || r.Compiles != exact.Compiles {
			t.Errorf("%s: %g s and %d compiles, exactly %g s and %d", s.name, r.Last, r.Compiles, exact.Last, exact.Compiles)
		}
	}
}

// A server that admits few connections refuses others; nodes repeat their requests after random pauses, and compile after three.
func TestRefusals(t *testing.T) {
	c := exact(func(c *config) { c.nodes, c.downloads, c.processes = 2, 1, 1 })
	c.modules, c.connections = c.modules[:1], 1
	f := newFleet(c)
	r := f.simulate(registry{f})
	if r.Refusals != tries || r.Compiles != 1 || r.FaultyNodes != 1 || !near(r.FromServer, 1e9) { // the layer takes 1 s, the tries 0.6 s
		t.Errorf("%+v", r)
	}
	if r.Last <= 60 || r.Last >= 60+firstPause*3 {
		t.Errorf("the node that compiles for 60 s is ready after %g s", r.Last)
	}
	c.moduleSize = 1e4 // 10 us
	f = newFleet(c)
	if r := f.simulate(registry{f}); r.Refusals == 0 || r.Compiles != 0 || r.FaultyNodes != 0 {
		t.Errorf("short requests: %+v", r)
	}
}
