package fleet

import (
	"fmt"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

// After a fault no process sends requests to the registry for a minute, so that each start of a program is not delayed
// again. The fault is a record of the cache, under the reference.

func (s *source) faultKey() cache.Key {
	var l cache.Lines
	l.Add("pull from", s.ref.String())
	return l.Key()
}

// suspend stores a fault.
func (s *source) suspend(e *jit.PullError) {
	err := s.store.PutServerFault(s.faultKey(), cache.ServerFault{Time: time.Now(), Cause: string(e.Cause), Text: e.Err.Error()})
	if err != nil {
		s.log.Debug("cannot store the fault of a registry; the next process tries again", "error", err)
	}
}

// suspended fails if a process had a fault within the last minute.
func (s *source) suspended() error {
	f, recent := s.store.RecentServerFault(s.faultKey(), suspension)
	if !recent {
		return nil
	}
	err := fmt.Errorf("a pull failed %s ago (%s); no process tries again before %s",
		time.Since(f.Time).Round(time.Second), f.Text, f.Time.Add(suspension).Format(time.TimeOnly))
	return &jit.PullError{From: s.ref.String(), Cause: jit.PullSuspended, Err: err}
}
