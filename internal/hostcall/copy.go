package hostcall

import (
	"sync"

	"github.com/aiter-go/aiter/trace"
)

// chunkBytes is the number of bytes that one processor copies at a time. It is at least 1 MiB: such long copies bypass the caches, and
// so do not read the destination's cache lines.
const chunkBytes = 2 << 20

// transfer is a copy between packed memory and a tensor in host memory.
type transfer struct {
	layout         *layout
	packed, memory []byte
}

// move runs the transfers of a piece in parallel, in chunks.
func (e *Engine) move(list []transfer, pack bool) {
	var wg sync.WaitGroup
	for _, t := range list {
		n := max(t.layout.bytes/chunkBytes, 1) // the last chunk is longer than the others
		for i := range n - 1 {
			wg.Go(func() { e.copyChunk(t, i*chunkBytes, (i+1)*chunkBytes, pack) })
		}
		e.copyChunk(t, (n-1)*chunkBytes, t.layout.bytes, pack)
	}
	wg.Wait()
}

// copyChunk copies the bytes [from, to) of a transfer when a processor is free.
func (e *Engine) copyChunk(t transfer, from, to int64, pack bool) {
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
