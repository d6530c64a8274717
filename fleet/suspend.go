package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/servers"
	"github.com/aiter-go/aiter/jit"
)

// server returns the suspension of the registry: after a fault no process sends requests to it for a minute. The fault is a record of
// the cache, under the reference.
func (s *source) server() *servers.Suspension {
	var l cache.Lines
	l.Add("pull from", s.ref.String())
	return servers.NewSuspension(s.store, l.Key(), s.log)
}

// suspend stores a fault.
func (s *source) suspend(e *jit.PullError) {
	s.server().Share(servers.Fault{Time: time.Now(), Cause: string(e.Cause), Err: e.Err})
}

// Suspension is the time after a fault in which no process of the user on this machine sends requests to a registry.
type Suspension struct {
	Since time.Time     `json:"since"`
	Until time.Time     `json:"until"`
	Cause jit.PullCause `json:"cause"`
	Fault string        `json:"fault"`
}

func (x *Suspension) String() string {
	return fmt.Sprintf("a pull failed %s ago (%s); no process tries again before %s",
		time.Since(x.Since).Round(time.Second), x.Fault, x.Until.Local().Format(time.TimeOnly))
}

// suspension describes the registry's suspension, nil if processes send requests to it.
func (s *source) suspension() *Suspension {
	f, suspended := s.server().Active()
	if !suspended {
		return nil
	}
	return &Suspension{Since: f.Time, Until: f.Until(), Cause: jit.PullCause(f.Cause), Fault: f.Err.Error()}
}

// suspended fails if a process had a fault within the last minute.
func (s *source) suspended() error {
	x := s.suspension()
	if x == nil {
		return nil
	}
	return &jit.PullError{From: s.ref.String(), Cause: jit.PullSuspended, Err: errors.New(x.String())}
}
