package buildfarm

import (
	"errors"
	"fmt"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/servers"
	"github.com/aiter-go/aiter/jit"
)

// A process runs all commands itself for a minute after the farm could not be reached or did not answer.

// longFault is the delay from which on a fault suspends the other processes of the cache too. A farm that fails at once, such as one
// that is being restarted, delays each process little, and the next command may use it again.
const longFault = time.Second

func newSuspension(x *executor) *servers.Suspension {
	var l cache.Lines
	l.Add("execute at", x.host)
	l.Add("instance", x.instance)
	return servers.NewSuspension(x.store, l.Key(), x.log)
}

// suspended fails if the farm failed a short time ago.
func (x *executor) suspended() error {
	f, suspended := x.suspension.Active()
	if !suspended {
		return nil
	}
	return &jit.ExecutorError{Cause: jit.ExecutorSuspended, Err: fmt.Errorf("%s is not used before %s: %w",
		x.host, f.Until().Format(time.TimeOnly), f.Err)}
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
	f := servers.Fault{Time: time.Now(), Cause: string(e.Cause), Err: e.Err}
	x.suspension.Suspend(f)
	if delay >= longFault {
		x.suspension.Share(f)
	}
}
