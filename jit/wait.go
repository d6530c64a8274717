package jit

import (
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

// lockWait tells of waiting for a lock that another holds, and of its end.
type lockWait struct {
	observe func(Event)
	since   time.Time // zero: nobody had to wait
}

func (w *lockWait) begin(h cache.Holder) {
	if w.since.IsZero() {
		w.since = time.Now()
	}
	w.observe(Event{Step: Waiting, Holder: h})
}

func (w *lockWait) end(err error) {
	if !w.since.IsZero() {
		w.observe(Event{Step: Waited, Seconds: since(w.since), Err: err})
	}
}
