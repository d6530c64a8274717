package buildfarm

import (
	"context"
	"fmt"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/aiter-go/aiter/jit"
)

// callWait is the longest time of a call that transfers little and runs nothing.
const callWait = 20 * time.Second

// watchdog ends an execution that makes no progress. Some servers send a first answer and then nothing until the command ends, so
// silence may mean a queue or a long compile. Any answer to this process therefore counts as progress, and the watchdog regularly makes
// another call, which the server must answer.
type watchdog struct {
	x       *executor
	running time.Duration // limit from the start on the worker

	mu      sync.Mutex
	started time.Time // on the worker; zero: unknown
}

// run checks the progress of the execution until ctx ends. It cancels the execution if there is none.
func (w *watchdog) run(ctx context.Context, cancel context.CancelCauseFunc) {
	begin := time.Now()
	w.x.progressed()
	tick := time.NewTicker(min(w.x.wait/4, callWait/4))
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		const probes = 4 // ticks from one to the next
		if why := w.expired(begin); why != "" {
			cancel(&jit.ExecutorError{Cause: jit.ExecutorTimeout, Err: fmt.Errorf("Execute at %s: %s", w.x.host, why)})
		} else if n%probes == 0 {
			if err := w.probe(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		}
	}
}

// start records when the worker began to run the command.
func (w *watchdog) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started.IsZero() {
		w.started = time.Now()
	}
}

// expired returns the reason why the execution must end, "" if it may go on.
func (w *watchdog) expired(begin time.Time) string {
	w.mu.Lock()
	started := w.started
	w.mu.Unlock()
	last := w.x.lastProgress()
	switch {
	case !started.IsZero() && time.Since(started) > w.running:
		return fmt.Sprintf("the command runs for longer than %s", w.running)
	case started.IsZero() && time.Since(last) > w.x.wait:
		return fmt.Sprintf("no progress for %s, which AITER_JIT_EXECUTOR_WAIT sets; the command was sent %s ago",
			w.x.wait, time.Since(begin).Round(time.Second))
	}
	return ""
}

// probe fails if the server does not answer.
func (w *watchdog) probe(ctx context.Context) error {
	_, err := call(ctx, w.x, "GetCapabilities", func(ctx context.Context) (*repb.ServerCapabilities, error) {
		return repb.NewCapabilitiesClient(w.x.conn).GetCapabilities(ctx, &repb.GetCapabilitiesRequest{InstanceName: w.x.instance})
	})
	return err
}

// progressed records the current time as that of the last answer to an execution of this process.
func (x *executor) progressed() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.progress = time.Now()
}

func (x *executor) lastProgress() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.progress
}
