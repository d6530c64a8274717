package registry

import "sync/atomic"

// calls counts the calls that run an operator, so that Close can wait for them: they
// use devices and memory that Close frees. A call that waits for a build is not
// counted; it checks again after the build.
type calls struct {
	closed atomic.Bool // enter fails

	// Several counters, each on its own cache line, so that cores do not share one.
	counters [16]counter
	next     atomic.Uint32 // counter of the next call
	ended    chan struct{} // capacity 1: holds a value if a call ended after closed was set
}

type counter struct {
	n atomic.Int64
	_ [56]byte
}

// counter returns one of the counters, the next one for each call of counter.
func (c *calls) counter() *counter {
	return &c.counters[c.next.Add(1)%uint32(len(c.counters))]
}

// enter counts a call and reports whether it may run. If so, the caller calls leave at the end of
// the call.
func (c *calls) enter(n *counter) bool {
	n.n.Add(1)
	if c.closed.Load() { // after counting: wait must count every call that may run
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
		default: // wait receives the value that is there, and reads the counters again
		}
	}
}

// wait waits for the calls that entered before closed was set.
func (c *calls) wait() {
	for i := range c.counters {
		for c.counters[i].n.Load() != 0 {
			<-c.ended
		}
	}
}
