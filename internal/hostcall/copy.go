package hostcall

import (
	"sync"

	"github.com/aiter-go/aiter/trace"
)

// copyPart is the number of bytes that one processor copies at a time, at least 1 MiB: from there on Go's copy writes past the
// caches, which saves the reads of the destination's lines.
const copyPart = 2 << 20

// transfer is a copy between packed memory and a tensor in host memory.
type transfer struct {
	layout         *layout
	packed, memory []byte
}

// move copies the parts of a piece at the same time, on the engine's processors.
func (e *Engine) move(list []transfer, pack bool) {
	var wg sync.WaitGroup
	for _, t := range list {
		n := max(t.layout.bytes/copyPart, 1) // the last part is longer than the others
		for i := range n - 1 {
			wg.Go(func() { e.part(t, i*copyPart, (i+1)*copyPart, pack) })
		}
		e.part(t, (n-1)*copyPart, t.layout.bytes, pack)
	}
	wg.Wait()
}

// part copies a range of a transfer when a processor is free.
func (e *Engine) part(t transfer, from, to int64, pack bool) {
	e.processors <- struct{}{}
	span := e.opts.Trace.Begin(trace.Copy, "to pinned memory")
	if !pack {
		span.Name = "from pinned memory"
	}
	span.Bytes = to - from
	t.layout.move(t.packed, t.memory, from, to, pack)
	span.End(nil)
	<-e.processors
}
