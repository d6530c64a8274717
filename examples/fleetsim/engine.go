package main

import (
	"container/heap"
	"math"
)

// engine runs events in the order of their times, and events of one time in the order in which they were added. Times are seconds.
type engine struct {
	now   float64
	queue events
	added int
	net   network
}

type event struct {
	at    float64
	order int
	do    func()
}

// after adds an event d seconds from now.
func (e *engine) after(d float64, do func()) {
	e.added++
	heap.Push(&e.queue, event{e.now + d, e.added, do})
}

// run runs until there are no events and no transfers.
func (e *engine) run() {
	for {
		at := math.Inf(1)
		if len(e.queue) > 0 {
			at = e.queue[0].at
		}
		if at > e.now {
			if ended := e.net.nextEnd(e.now); ended < at {
				e.now = ended
				for _, f := range e.net.removeEnded(e.now) {
					f.done()
				}
				continue
			}
		}
		if math.IsInf(at, 1) {
			return
		}
		e.now = at
		heap.Pop(&e.queue).(event).do()
	}
}

// events is a [heap.Interface].
type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, k int) bool {
	return q[i].at < q[k].at || q[i].at == q[k].at && q[i].order < q[k].order
}
func (q events) Swap(i, k int) { q[i], q[k] = q[k], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	n := len(*q) - 1
	last := (*q)[n]
	(*q)[n] = event{}
	*q = (*q)[:n]
	return last
}

// slots is a queue for a number of servers that do one job at a time, such as the compilers or the downloads of a node.
type slots struct {
	free  int      // servers without a job
	queue []func() // jobs that wait, in the order of their arrival
}

// acquire calls do when a server is free; do or a later event calls release.
func (s *slots) acquire(do func()) {
	if s.free == 0 {
		s.queue = append(s.queue, do)
		return
	}
	s.free--
	do()
}

func (s *slots) release() {
	if len(s.queue) == 0 {
		s.free++
		return
	}
	next := s.queue[0]
	s.queue = s.queue[1:]
	next()
}
