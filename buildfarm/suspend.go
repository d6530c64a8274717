package buildfarm

import (
	"errors"
	"fmt"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

const (
	// suspension is how long a process runs all commands itself after the farm could not be reached or did not answer.
	suspension = time.Minute
	// longFault is the delay from which on a fault suspends the other processes of the cache too. A farm that fails at once, such as one
	// that is being restarted, delays each process little, and the next command may use it again.
	longFault = time.Second
)

func (x *executor) faultKey() cache.Key {
	var l cache.Lines
	l.Add("execute at", x.host)
	l.Add("instance", x.instance)
	return l.Key()
}

// suspended fails if the farm failed a short time ago.
func (x *executor) suspended() error {
	x.mu.Lock()
	until, fault := x.until, x.fault
	x.mu.Unlock()
	if !time.Now().Before(until) {
		f, recent := x.store.RecentServerFault(x.faultKey(), suspension)
		if !recent {
			return nil
		}
		until, fault = f.Time.Add(suspension), errors.New(f.Text)
	}
	return &jit.ExecutorError{Cause: jit.ExecutorSuspended, Err: fmt.Errorf("%s is not used before %s: %w",
		x.host, until.Format(time.TimeOnly), fault)}
}

// suspend notes a failure after which other commands do not wait for the farm too. It delayed a command for a time.
func (x *executor) suspend(err error, delay time.Duration) {
	var e *jit.ExecutorError
	if !errors.As(err, &e) {
		return
	}
	switch e.Cause {
	case jit.ExecutorUnreachable, jit.ExecutorTimeout, jit.ExecutorDenied:
	default:
		return
	}
	now := time.Now()
	x.mu.Lock()
	x.until, x.fault = now.Add(suspension), e.Err
	x.mu.Unlock()
	if delay < longFault {
		return
	}
	err = x.store.PutServerFault(x.faultKey(), cache.ServerFault{Time: now, Cause: string(e.Cause), Text: e.Err.Error()})
	if err != nil {
		x.log.Debug("cannot store the fault of a build farm; other processes use it", "error", err)
	}
}
