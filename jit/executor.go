package jit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/slots"
)

// Executor runs the commands of actions on other machines. Any goroutine may call its methods. Without one, a [Manager]
// runs them as processes of this machine.
type Executor interface {
	// Execute runs a command, or takes the result of an equal command from the farm's cache, and writes the outputs to
	// c.Dir. Each output has the digest that the farm declares. It fails with [*ExecutorError].
	Execute(ctx context.Context, c RemoteCommand) (Execution, error)
}

// RemoteCommand is a command for another machine. Names of files are relative to its working folder, which contains the
// inputs and nothing else. The result is a function of the fields except Fresh and Dir.
type RemoteCommand struct {
	Script    string            // for /bin/sh
	Environ   []string          // the complete environment: NAME=value
	Inputs    map[string][]byte // content by name: "src/a.cpp"
	Outputs   []string          // files that the script makes, in the folder out
	Optional  []string          // files that it may make there
	Toolchain string            // digest, for the properties of the platform
	Timeout   time.Duration     // of the script
	Fresh     bool              // run the script even if the farm has a result
	Dir       string            // folder for the outputs, without the folder out
}

// Execution is a successful run of a command.
type Execution struct {
	Cached bool // the farm had the result
}

// OpenExecutor opens an executor.
type OpenExecutor func(ExecutorOptions) (Executor, error)

// ExecutorOptions are the settings of an executor. All fields are required.
type ExecutorOptions struct {
	Address string              // "grpcs://farm:8980/instance"
	Cache   *cache.Dir          // has the faults that the user's processes share
	Getenv  func(string) string // reads an environment variable
	Logger  *slog.Logger
}

// ExecutorCause is the kind of an [ExecutorError]. There are few, so that they can be counted.
type ExecutorCause string

// The causes of executions without a result. Each ends with a compile on this machine.
const (
	ExecutorUnreachable ExecutorCause = "unreachable" // no connection, or a broken one
	ExecutorTimeout     ExecutorCause = "timeout"     // no answer in time
	ExecutorDenied      ExecutorCause = "denied"      // wrong or missing credentials
	ExecutorServer      ExecutorCause = "server"      // the server failed, or it cannot run the command
	ExecutorSuspended   ExecutorCause = "suspended"   // the farm failed a short time ago
	ExecutorDamaged     ExecutorCause = "damaged"     // an output is missing, or has another digest than declared
	ExecutorFailed      ExecutorCause = "failed"      // the command failed, such as for an error in the source
	ExecutorToolchain   ExecutorCause = "toolchain"   // the worker has another toolchain
	ExecutorInputs      ExecutorCause = "inputs"      // the worker read other files than this machine has, or this cannot be checked
	ExecutorCanceled    ExecutorCause = "canceled"    // the caller's context ended
	ExecutorOther       ExecutorCause = "other"
)

// ExecutorError reports that an executor gave no usable result.
type ExecutorError struct {
	Cause  ExecutorCause
	Cached bool // the result came from the farm's cache, so that a fresh run may give another
	Err    error
}

func (e *ExecutorError) Error() string { return "build farm: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *ExecutorError) Unwrap() error { return e.Err }

// isOfResult reports whether the farm works, but its result is unusable. Other inputs or a fresh run may give another result.
func (e *ExecutorError) isOfResult() bool {
	switch e.Cause {
	case ExecutorDamaged, ExecutorFailed, ExecutorInputs, ExecutorToolchain:
		return true
	}
	return false
}

// WorkerToolchainStatus is the exit status of a script on a worker with another toolchain.
const WorkerToolchainStatus = 90

// Limits of actions that run at a time.
const (
	maxExecutions = 64 // on an executor
	maxFallbacks  = 4  // on this machine, after the executor failed, so that an outage does not start all compilers at once
)

// remote is the state of a manager with an executor.
type remote struct {
	executor Executor
	local    *slots.Pool // for compilers on this machine
	warn     sync.Once

	mu    sync.Mutex
	tools map[string]workerTools // by toolchain.Identity
}

// newRemote returns the state of a manager that may run jobs compilers on this machine.
func newRemote(e Executor, jobs int) *remote {
	if e == nil {
		return nil
	}
	return &remote{executor: e, local: slots.New(min(jobs, maxFallbacks)), tools: map[string]workerTools{}}
}

// remotely calls try to run an action on the executor. After an unusable result of the farm's cache it tries again without
// that cache. After an unusable result with the known files it tries again with all declared files. It reports and counts
// the outcome.
func (a *action) remotely(ctx context.Context, e Event, known bool, try func(declared, fresh bool) error) error {
	start, declared, fresh := time.Now(), !known, false
	const tries = 3
	var err error
	for range tries {
		err = try(declared, fresh)
		var failed *ExecutorError
		if !errors.As(err, &failed) || !failed.isOfResult() || ctx.Err() != nil {
			break
		}
		switch {
		case failed.Cached && !fresh:
			fresh = true
		case !declared && failed.Cause != ExecutorToolchain:
			declared, fresh = true, false
		default:
			return a.executed(ctx, e, start, err)
		}
	}
	return a.executed(ctx, e, start, err)
}

// executed reports and counts an execution.
func (a *action) executed(ctx context.Context, e Event, start time.Time, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e.Step, e.Seconds, e.Err = Executed, since(start), err
	e = a.event(e)
	logEvent(a.m.opts.Logger, e)
	a.m.opts.Observer.Observe(e)
	count := cache.Count{Event: cache.Execution, N: 1, Seconds: e.Seconds}
	if err != nil {
		count.Cause = string(ExecutorOther)
		var failed *ExecutorError
		if errors.As(err, &failed) {
			count.Cause = string(failed.Cause)
		}
		a.m.remote.warn.Do(func() {
			a.m.opts.Logger.Warn("the build farm gave no result; this machine compiles instead", "error", err)
		})
	}
	a.m.opts.Cache.Count(count)
	return err
}

// fallback waits until the action may run on this machine. A manager with an executor has more slots than this machine has
// processors, so a pool of its own limits these runs. The caller calls release when the run has ended.
func (a *action) fallback(ctx context.Context) (release func(), err error) {
	if a.m.remote == nil {
		return func() {}, nil
	}
	pool := a.m.remote.local
	if err := pool.Acquire(ctx, a.ticket.rank, func() {}); err != nil {
		return nil, err
	}
	return pool.Release, nil
}

// unusable makes the error of a result that this machine does not accept.
func unusable(cause ExecutorCause, run Execution, format string, args ...any) error {
	return &ExecutorError{Cause: cause, Cached: run.Cached, Err: fmt.Errorf(format, args...)}
}
