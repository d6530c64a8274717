package optests

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// parallel calls each for 0 to n-1 on several goroutines. The calls must not write
// the same memory.
func parallel(n int, each func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				each(i)
			}
		})
	}
	wg.Wait()
}
