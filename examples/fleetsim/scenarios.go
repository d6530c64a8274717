package main

// scenario is a way in which a fleet gets its modules.
type scenario struct {
	name   string
	adjust func(*config) // nil for none
	by     func(*fleet) strategy
}

func (s scenario) run(c config) result {
	if s.adjust != nil {
		s.adjust(&c)
	}
	f := newFleet(c)
	r := f.simulate(s.by(f))
	r.Name = s.name
	return r
}

// scenarios returns the rows of the table.
func scenarios() []scenario {
	nodeAlone := func(f *fleet) strategy { return alone{f} }
	cached := func(f *fleet) strategy { return newSharedCache(f, false) }
	cachedOnce := func(f *fleet) strategy { return newSharedCache(f, true) }
	pulled := func(f *fleet) strategy { return registry{f} }
	layers := func(f *fleet) strategy { return newPeers(f, 0, false) }
	pieces := func(f *fleet) strategy { return newPeers(f, f.piece, true) }
	return []scenario{
		{"each node alone, one compiler at a time", func(c *config) { c.slots = 1 }, nodeAlone},
		{"each node alone", nil, nodeAlone},
		{"shared cache without single flight", nil, cached},
		{"shared cache with single flight", nil, cachedOnce},
		{"shared cache with single flight, longest module in parts", func(c *config) { c.divided = true }, cachedOnce},
		{"set from a registry", nil, pulled},
		{"set from a registry, all targets", func(c *config) { c.allTargets = true }, pulled},
		{"set in an image, one layer with all targets", func(c *config) { c.allTargets, c.oneLayer = true, true }, pulled},
		{"set from a registry, nodes give up after 20 s", func(c *config) { c.wait = clientWait }, pulled},
		{"set from a registry, four modules at a time, nodes give up after 20 s",
			func(c *config) { c.wait, c.downloads = clientWait, 4 }, pulled},
		{"set from a registry, 500 connections, then status 429", func(c *config) { c.connections = fewConnections }, pulled},
		{"nodes share layers, all in the same order", nil, layers},
		{"nodes share layers, in random orders", func(c *config) { c.shuffled = true }, layers},
		{"nodes share layers, in random orders, four at a time", func(c *config) { c.shuffled, c.downloads = true, 4 }, layers},
		{"nodes share pieces of layers", nil, pieces},
	}
}
