package registry

import "sync/atomic"

// calls counts the calls that run an operator, so that Close can wait for them:
// they use devices and memory that it frees. A call that waits for a build is not
// among them, and checks again afterwards.
type calls struct {
	closed atomic.Bool // nobody enters any more

	// Several, each on a cache line of its own: all cores would fight for one.
	counters [16]counter
	next     atomic.Uint32
	ended    chan struct{} // of capacity 1: holds one when a call ended after the closing
}

type counter struct {
	n atomic.Int64
	_ [56]byte
}

// counter returns one to count a call with.
func (c *calls) counter() *counter {
	return &c.counters[c.next.Add(1)%uint32(len(c.counters))]
}

// enter says whether the call may go on; it leaves when it has ended.
func (c *calls) enter(n *counter) bool {
	n.n.Add(1)
	if c.closed.Load() { // after the counting: who closes sees one or the other
		c.leave(n)
		return false
	}
	return true
}

func (c *calls) leave(n *counter) {
	n.n.Add(-1)
	if c.closed.Load() {
		select {
		case c.ended <- struct{}{}:
		default: // one is there, and who takes it counts anew
		}
	}
}

// wait waits, after the closing, for the calls that entered before it.
func (c *calls) wait() {
	for i := range c.counters {
		for c.counters[i].n.Load() != 0 {
			<-c.ended
		}
	}
}
