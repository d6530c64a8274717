package fleet

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

// After a fault no process sends requests to the registry for a minute, so that each start of a program is not delayed
// again. The fault is a record of the cache, under the reference.

// faultRecord is the last fault of a reference.
type faultRecord struct {
	Time  time.Time     `json:"time"`
	Cause jit.PullCause `json:"cause"`
	Text  string        `json:"text"`
}

func (s *source) faultKey() cache.Key {
	var l cache.Lines
	l.Add("pull from", s.ref.String())
	return l.Key()
}

// suspend stores a fault.
func (s *source) suspend(e *jit.PullError) {
	data, err := json.Marshal(faultRecord{time.Now(), e.Cause, e.Err.Error()})
	if err == nil {
		err = s.store.Put(cache.Failure, s.faultKey(), data)
	}
	if err != nil {
		s.log.Debug("cannot store the fault of a registry; the next process tries again", "error", err)
	}
}

// suspended fails if a process had a fault within the last minute.
func (s *source) suspended() error {
	data, err := s.store.Get(cache.Failure, s.faultKey())
	if err != nil {
		return nil
	}
	var f faultRecord
	if err := json.Unmarshal(data, &f); err != nil {
		return nil
	}
	age := time.Since(f.Time)
	if age < 0 || age >= suspension { // a time in the future comes from a wrong clock
		return nil
	}
	err = fmt.Errorf("a pull failed %s ago (%s); no process tries again before %s",
		age.Round(time.Second), f.Text, f.Time.Add(suspension).Format(time.TimeOnly))
	return &jit.PullError{From: s.ref.String(), Cause: jit.PullSuspended, Err: err}
}
