package hostcall

import (
	"runtime"
	"sync"
)

// copyPart is the number of bytes for which another processor's start pays.
const copyPart = 512 << 10

// transfer is a copy between packed memory and a tensor in host memory.
type transfer struct {
	layout         *layout
	packed, memory []byte
}

// transfers copies with all processors.
func transfers(list []transfer, pack bool) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(runtime.GOMAXPROCS(0), 1))
	for _, t := range list {
		part := max(copyPart, t.layout.bytes/int64(cap(slots)))
		for from := int64(0); from < t.layout.bytes; from += part {
			to := min(from+part, t.layout.bytes)
			if to == t.layout.bytes && len(list) == 1 && from == 0 {
				t.layout.move(t.packed, t.memory, from, to, pack)
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				t.layout.move(t.packed, t.memory, from, to, pack)
				<-slots
			})
		}
	}
	wg.Wait()
}
