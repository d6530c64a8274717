package main

// peers is a registry whose layers nodes also get from each other, in pieces.
type peers struct {
	*fleet
	pieces [][]*piece // by module

	// If once is set, one node at a time loads a piece from the server, a node sends at most config.uploads pieces at a time, and the
	// other nodes ask again later. Otherwise a node that finds no peer loads from the server at once.
	once bool
}

// piece is a part of a layer.
type piece struct {
	bytes   float64
	holders []*node
	loading bool // a node loads it from the server
}

// candidates is the number of holders that a node tries before it asks again later.
const candidates = 4

// newPeers divides each layer into pieces of a size in bytes; 0: a layer is one piece.
func newPeers(f *fleet, size float64, once bool) *peers {
	s := &peers{fleet: f, once: once}
	for _, m := range f.modules {
		var list []*piece
		for left := m.bytes; left > 0; {
			p := &piece{bytes: left}
			if size > 0 {
				p.bytes = min(left, size)
			}
			list = append(list, p)
			left -= p.bytes
		}
		s.pieces = append(s.pieces, list)
	}
	return s
}

func (s *peers) obtain(n *node, m int, done func()) {
	n.downloads.acquire(func() {
		missing := append([]*piece(nil), s.pieces[m]...)
		s.random.Shuffle(len(missing), func(i, k int) { missing[i], missing[k] = missing[k], missing[i] })
		s.after(s.discovery, func() {
			s.next(n, missing, func() {
				n.downloads.release()
				s.unpack(n, m, done)
			})
		})
	})
}

// next loads the missing pieces one after another.
func (s *peers) next(n *node, missing []*piece, done func()) {
	if len(missing) == 0 {
		done()
		return
	}
	for i, p := range missing {
		from := s.peer(p)
		if from == nil && s.once && (p.loading || len(p.holders) > 0) {
			continue
		}
		missing[i], missing[0] = missing[0], missing[i]
		s.load(n, from, p, func() { s.next(n, missing[1:], done) })
		return
	}
	s.after(s.random.Float64()*2*s.discovery, func() { s.next(n, missing, done) })
}

// peer returns a random holder that may send a piece, or nil if it finds none.
func (s *peers) peer(p *piece) *node {
	for range min(candidates, len(p.holders)) {
		h := p.holders[s.random.IntN(len(p.holders))]
		if !s.once || h.uploads < s.uploads {
			return h
		}
	}
	return nil
}

// load copies a piece from a holder, or from the server.
func (s *peers) load(n, from *node, p *piece, done func()) {
	up := &s.up
	if from != nil {
		up = &from.up
		from.uploads++
		s.totals.between += p.bytes
	} else {
		p.loading = true
	}
	s.after(s.latency, func() {
		s.net.start(up, &n.down, p.bytes, func() {
			if from != nil {
				from.uploads--
			} else {
				p.loading = false
			}
			p.holders = append(p.holders, n)
			done()
		})
	})
}
