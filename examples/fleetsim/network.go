package main

import "math"

// network moves flows over links. Flows that run at the same time have max-min fair rates: each flow is limited by a link that is full
// and on which no other flow is faster.
type network struct {
	flows []*flow
	links []*link // those that ever had a flow
	full  levels  // scratch memory of share

	// slack is the share of a flow that may be missing when it ends, so that flows that end at about the same time need one computation
	// of rates. 0 is exact.
	slack float64

	at      float64 // the time for which each flow.left holds
	changed bool    // flows have been added or removed since the rates were computed
	next    float64 // when the next flow ends at these rates
	first   *flow   // that flow
}

// link carries flows in one direction.
type link struct {
	capacity float64 // bytes per second
	carried  float64 // bytes of flows that have left the network
	flows    []*flow
	known    bool // to the network

	rest float64 // capacity minus the rates of the flows whose rates share has computed
	open int     // flows whose rates share has not computed yet
}

// flow is a transfer over two links.
type flow struct {
	links     [2]*link
	linkIndex [2]int // in the flows of each link
	index     int    // in network.flows
	size      float64
	left      float64
	rate      float64
	open      bool // share has not computed the rate yet
	done      func()
}

// start begins a transfer of size bytes over two links. done is called when it ends.
func (n *network) start(a, b *link, size float64, done func()) *flow {
	f := &flow{links: [2]*link{a, b}, index: len(n.flows), size: size, left: size, done: done}
	n.flows = append(n.flows, f)
	for i, l := range f.links {
		if !l.known {
			l.known = true
			n.links = append(n.links, l)
		}
		f.linkIndex[i] = len(l.flows)
		l.flows = append(l.flows, f)
	}
	n.changed = true
	return f
}

// stop ends a flow before its time and returns the bytes that it has moved.
func (n *network) stop(now float64, f *flow) float64 {
	n.advance(now)
	moved := f.size - f.left
	n.remove(f, moved)
	return moved
}

// remove removes a flow from the network.
func (n *network) remove(f *flow, moved float64) {
	last := n.flows[len(n.flows)-1]
	n.flows[f.index], last.index = last, f.index
	n.flows = n.flows[:len(n.flows)-1]
	for i, l := range f.links {
		l.carried += moved
		end := l.flows[len(l.flows)-1]
		l.flows[f.linkIndex[i]] = end
		if end.links[0] == l {
			end.linkIndex[0] = f.linkIndex[i]
		} else {
			end.linkIndex[1] = f.linkIndex[i]
		}
		l.flows = l.flows[:len(l.flows)-1]
	}
	n.changed = true
}

// advance moves the bytes of all flows up to now, at the current rates.
func (n *network) advance(now float64) {
	if d := now - n.at; d > 0 {
		for _, f := range n.flows {
			f.left -= float64(f.rate * d) // the conversion forbids a fused operation, so that all processors have the same results
		}
	}
	n.at = now
}

// nextEnd returns the time at which the next flow ends, or +Inf if there are no flows.
func (n *network) nextEnd(now float64) float64 {
	switch {
	case n.changed:
	case n.first == nil:
		return math.Inf(1)
	default:
		return n.next
	}
	n.advance(now)
	n.share()
	n.changed, n.next, n.first = false, math.Inf(1), nil
	for _, f := range n.flows {
		if end := n.at + max(f.left, 0)/f.rate; end < n.next {
			n.next, n.first = end, f
		}
	}
	return n.next
}

// removeEnded removes and returns the flows that have ended at the time that nextEnd returned.
func (n *network) removeEnded(now float64) []*flow {
	n.advance(now)
	n.first.left = 0
	var ended []*flow
	for _, f := range n.flows {
		if f.left <= n.slack*f.size {
			ended = append(ended, f)
		}
	}
	for _, f := range ended {
		n.remove(f, f.size)
	}
	return ended
}

// share computes the rates. It repeatedly finds the link with the smallest offer to each of its open flows, and gives them that rate.
func (n *network) share() {
	n.full = n.full[:0]
	for _, l := range n.links {
		if l.rest, l.open = l.capacity, len(l.flows); l.open > 0 {
			n.full = append(n.full, level{l.offer(), l})
		}
	}
	for _, f := range n.flows {
		f.open = true
	}
	n.full.order()
	for open := len(n.flows); open > 0; {
		l := n.full[0].link
		if l.open > 0 && l.offer() > n.full[0].offer { // the offer has grown: its other flows got lower rates
			n.full[0].offer = l.offer()
			n.full.sink(0)
			continue
		}
		if l.open > 0 {
			open -= l.open
			l.settle(l.offer())
		}
		n.full.removeFirst()
	}
}

// offer is the rate that the link has for each open flow.
func (l *link) offer() float64 { return l.rest / float64(l.open) }

// settle gives all open flows of the link a rate.
func (l *link) settle(rate float64) {
	for _, f := range l.flows {
		if !f.open {
			continue
		}
		f.open, f.rate = false, rate
		for _, k := range f.links {
			k.rest = max(k.rest-rate, 0)
			k.open--
		}
	}
}

// levels is a heap of links, the one with the smallest offer first.
type levels []level

type level struct {
	offer float64
	link  *link
}

func (h levels) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

func (h levels) sink(i int) {
	for {
		k := 2*i + 1
		if k >= len(h) {
			return
		}
		if k+1 < len(h) && h[k+1].offer < h[k].offer {
			k++
		}
		if h[i].offer <= h[k].offer {
			return
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
}

func (h *levels) removeFirst() {
	last := len(*h) - 1
	(*h)[0] = (*h)[last]
	*h = (*h)[:last]
	h.sink(0)
}
