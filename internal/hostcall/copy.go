package hostcall

import "sync"

// copyPart is the least number of bytes that one processor copies: for fewer the start of another takes longer. From 1 MiB on Go's
// copy writes past the caches, which saves the reads of the destination's lines.
const copyPart = 1 << 20

// transfer is a copy between packed memory and a tensor in host memory.
type transfer struct {
	layout         *layout
	packed, memory []byte
}

// move copies parts at the same time, on the engine's processors. pieces is the number of pieces that are copied at the same time:
// of many, each is one part.
func (e *Engine) move(list []transfer, pieces int, pack bool) {
	var wg sync.WaitGroup
	for _, t := range list {
		part := max(copyPart, t.layout.bytes*int64(pieces)/int64(cap(e.processors)))
		n := max(t.layout.bytes/part, 1) // the last part is longer than the others
		for i := range n - 1 {
			wg.Go(func() { e.part(t, i*part, (i+1)*part, pack) })
		}
		e.part(t, (n-1)*part, t.layout.bytes, pack)
	}
	wg.Wait()
}

// part copies a range of a transfer when a processor is free.
func (e *Engine) part(t transfer, from, to int64, pack bool) {
	e.processors <- struct{}{}
	t.layout.move(t.packed, t.memory, from, to, pack)
	<-e.processors
}
