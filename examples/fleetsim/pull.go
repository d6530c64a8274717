package main

// tries and firstPause have the values of package fleet. A request that the server refuses is repeated after a random pause.
const (
	tries      = 3
	firstPause = 0.2 // seconds; the longest pause before the second try; it doubles before each further try
)

// registry is a server from which nodes pull the set that CI has pushed. A node whose pull fails compiles.
type registry struct{ *fleet }

func (s registry) obtain(n *node, m int, done func()) {
	n.downloads.acquire(func() {
		if n.faulty {
			n.downloads.release()
			alone(s).obtain(n, m, done)
			return
		}
		p := &pull{fleet: s.fleet, node: n, bytes: s.modules[m].bytes}
		p.loaded = func() {
			n.downloads.release()
			s.unpack(n, m, done)
		}
		p.failed = func() {
			s.fault(n)
			alone(s).obtain(n, m, done) // before the node's next modules
			n.downloads.release()
		}
		p.begin()
	})
}

// fault makes a node faulty: it sends no further requests to the server.
func (f *fleet) fault(n *node) {
	if !n.faulty {
		n.faulty = true
		f.totals.faults++
	}
}

// unpack checks and unpacks a layer. A node does this with one layer at a time.
func (f *fleet) unpack(n *node, m int, done func()) {
	n.unpacker.acquire(func() {
		f.after(f.modules[m].bytes/f.unpackRate, func() {
			n.unpacker.release()
			done()
		})
	})
}

// pull is a request to the server for some bytes.
type pull struct {
	*fleet
	node           *node
	bytes          float64
	loaded, failed func() // one of them is called at the end

	flow  *flow
	ended bool
}

// begin sends the request. The request fails if it has not ended after config.wait.
func (p *pull) begin() {
	if p.wait > 0 {
		p.after(p.wait, func() {
			if p.ended {
				return
			}
			if p.flow != nil {
				p.net.stop(p.now, p.flow)
				p.serving--
			}
			p.end(p.failed)
		})
	}
	p.try(1)
}

func (p *pull) end(then func()) {
	p.ended = true
	then()
}

// try sends the request for the n-th time.
func (p *pull) try(n int) {
	p.after(p.latency, func() {
		switch {
		case p.ended:
		case p.connections == 0 || p.serving < p.connections:
			p.serving++
			p.flow = p.net.start(&p.up, &p.node.down, p.bytes, func() {
				p.serving--
				p.end(p.loaded)
			})
		case n == tries:
			p.totals.refusals++
			p.end(p.failed)
		default:
			p.totals.refusals++
			p.after(p.random.Float64()*firstPause*float64(int(1)<<(n-1)), func() { p.try(n + 1) })
		}
	})
}
