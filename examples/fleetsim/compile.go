package main

// alone compiles every module on the node.
type alone struct{ *fleet }

func (s alone) obtain(n *node, m int, done func()) {
	n.compilers.acquire(func() { s.compile(n, m, done) })
}

// compile compiles in the slot that the caller holds, and releases it.
func (f *fleet) compile(n *node, m int, done func()) {
	f.totals.compiles++
	f.totals.seconds += f.modules[m].seconds
	f.after(f.modules[m].seconds, func() {
		n.compilers.release()
		done()
	})
}

// sharedCache is a cache on the server that nodes read and write. With single flight one node at a time compiles a module, and the
// others wait for its result.
type sharedCache struct {
	*fleet
	singleFlight bool
	entries      []entry // by module
}

type entry struct {
	stored    bool
	compiling bool
	waiting   []func()
}

func newSharedCache(f *fleet, singleFlight bool) *sharedCache {
	return &sharedCache{f, singleFlight, make([]entry, len(f.modules))}
}

func (s *sharedCache) obtain(n *node, m int, done func()) {
	n.compilers.acquire(func() { s.after(s.latency, func() { s.lookUp(n, m, done) }) })
}

// lookUp decides in a compiler slot what the node does.
func (s *sharedCache) lookUp(n *node, m int, done func()) {
	e := &s.entries[m]
	read := func() { s.read(n, m, done) }
	switch {
	case e.stored:
		n.compilers.release()
		read()
	case s.singleFlight && e.compiling:
		e.waiting = append(e.waiting, read)
		n.compilers.release()
	default:
		e.compiling = true
		s.compile(n, m, func() {
			s.after(s.latency, func() { s.net.start(&n.up, &s.down, s.modules[m].bytes, func() { s.store(e) }) })
			done()
		})
	}
}

// store publishes an entry.
func (s *sharedCache) store(e *entry) {
	e.stored = true
	for _, read := range e.waiting {
		read()
	}
	e.waiting = nil
}

// read copies an entry to the node.
func (s *sharedCache) read(n *node, m int, done func()) {
	n.downloads.acquire(func() {
		s.after(s.latency, func() {
			s.net.start(&s.up, &n.down, s.modules[m].bytes, func() {
				n.downloads.release()
				done()
			})
		})
	})
}
