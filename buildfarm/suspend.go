package buildfarm

import (
	"errors"
	"fmt"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/servers"
	"github.com/aiter-go/aiter/jit"
)

// After a fault of the farm, such as a refused connection, the process runs all commands on this machine for a minute.

// longFault is the least delay of a command after which a fault suspends the farm for other processes with the same cache too. A farm
// that fails at once, such as during a restart, delays each process little, so other processes may try it.
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

// suspend stops the use of the farm for a while after a fault, so that other commands do not wait for it too. delay is the time for
// which the fault delayed a command.
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
