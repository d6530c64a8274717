//go:build linux

package process

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tracer follows a process and its children with ptrace(2). All its methods run on one thread.
type tracer struct {
	threads    map[int]*thread
	ended      map[int]bool    // threads that ended before the stop of their parent that reports them
	rules      map[uint64]rule // system calls of interest, by number
	options    int             // of ptrace(2)
	seen       map[Access]bool
	written    map[name]bool
	incomplete string // see Trace.Incomplete
}

// name is a path in the filesystem of a traced process.
type name struct {
	path   string
	inside bool
}

// thread is one traced thread.
type thread struct {
	started   bool  // its first stop is over
	announced bool  // its parent has reported it
	pending   *call // the system call that it executes, nil if the tracer ignores it
	inside    *bool // see Access.Inside; nil: not known yet

	filtered   bool          // it stops only at the system calls of the tracer's rules
	installing *installation // of its filter; nil: none is being installed
}

// call is a system call with its arguments.
type call struct {
	rule rule
	path name        // absolute
	file unix.Stat_t // for execve: the program
	args [6]uint64
}

const traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
	unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_EXITKILL

func newTracer() *tracer {
	return &tracer{
		rules: platformRules(), options: traceOptions, threads: map[int]*thread{}, ended: map[int]bool{},
		seen: map[Access]bool{}, written: map[name]bool{},
	}
}

// loop continues the process, which is stopped at its first instruction, and handles its stops until it ends. It fails if
// tracing fails.
func (t *tracer) loop(pid int) (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	if _, err := wait(pid, &ws); err != nil || !ws.Stopped() {
		return ws, fmt.Errorf("the process did not stop: status %#x, %w", ws, cmp.Or[error](err, unix.ESRCH))
	}
	t.threads[pid] = &thread{started: true, announced: true} // so that endTracing kills it after an error
	if err := unix.PtraceSetOptions(pid, t.options); err != nil {
		return ws, fmt.Errorf("set options: %w", err)
	}
	exe, _ := os.Readlink(proc(pid, "exe")) // "" is not filtered
	t.install(pid, t.threads[pid], exe)
	if err := unix.PtraceSyscall(pid, 0); err != nil {
		return ws, fmt.Errorf("continue: %w", err)
	}
	for {
		id, err := t.next(&ws)
		if err != nil {
			return ws, fmt.Errorf("wait: %w", err)
		}
		if !ws.Stopped() {
			t.forget(id)
			if id == pid {
				return ws, nil
			}
			continue
		}
		signal, err := t.stopped(id, ws)
		if err != nil {
			return ws, err
		}
		t.resume(id, signal)
	}
}

// resume continues a stopped thread until its next stop. A filtered thread stops at the return from a system call only if the
// tracer handles that call.
func (t *tracer) resume(id, signal int) {
	// The error ESRCH reports that the thread was killed. Its end will be reported.
	if th := t.threads[id]; th != nil && th.filtered && th.pending == nil {
		_ = unix.PtraceCont(id, signal)
	} else {
		_ = unix.PtraceSyscall(id, signal)
	}
}

// next waits for a stop or the end of a traced thread. It does not take the reports of other children of this thread,
// because the host program may have started them and waits for them itself.
func (t *tracer) next(ws *unix.WaitStatus) (int, error) {
	for {
		id, trapped, err := peek()
		if err != nil {
			return 0, err
		}
		if trapped || t.threads[id] != nil {
			return wait(id, ws)
		}
		// The kernel reports this child first until the host program has waited for it.
		for id := range t.threads {
			if got, err := poll(id, ws); err == nil && got == id {
				return id, nil
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// peek waits until a child of this thread has a report, and leaves the report in place. trapped is true for stops that
// only traced threads make.
func peek() (id int, trapped bool, err error) {
	var info unix.Siginfo
	err = unix.EINTR
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WALL|unix.WNOTHREAD, nil)
	}
	// si_pid is the first member of the union at byte 16.
	id = int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 16)))
	return id, info.Code == cldTrapped, err
}

// cldTrapped is CLD_TRAPPED of signal.h.
const cldTrapped = 4

// wait waits for the report of a thread and removes it.
func wait(id int, ws *unix.WaitStatus) (int, error) { return wait4(id, ws, unix.WALL|unix.WNOTHREAD) }

// poll is like wait, but returns 0 if there is no report.
func poll(id int, ws *unix.WaitStatus) (int, error) {
	return wait4(id, ws, unix.WALL|unix.WNOTHREAD|unix.WNOHANG)
}

func wait4(id int, ws *unix.WaitStatus, options int) (int, error) {
	for {
		got, err := unix.Wait4(id, ws, options, nil)
		if err != unix.EINTR {
			return got, err
		}
	}
}

// forget removes a thread that has ended.
func (t *tracer) forget(id int) {
	if th := t.threads[id]; th == nil || !th.announced {
		t.ended[id] = true
	}
	delete(t.threads, id)
}

// announce adds the thread that the thread id has just created. The thread id is stopped to report it.
func (t *tracer) announce(id int) {
	msg, err := unix.PtraceGetEventMsg(id)
	if err != nil {
		return // it was killed, and its end will be reported
	}
	child := int(msg)
	if t.ended[child] {
		delete(t.ended, child)
		return
	}
	if t.threads[child] == nil {
		t.threads[child] = &thread{}
	}
	t.threads[child].announced = true
	if parent := t.threads[id]; parent != nil {
		t.threads[child].filtered = parent.filtered
	}
}

// stopped handles one stop of a thread and returns the signal to deliver to it.
func (t *tracer) stopped(id int, ws unix.WaitStatus) (signal int, err error) {
	th := t.threads[id]
	if th == nil {
		th = &thread{}
		t.threads[id] = th
	}
	sig := ws.StopSignal()
	switch {
	case sig == unix.SIGTRAP|0x80:
		return 0, t.syscall(id, th)
	case sig == unix.SIGTRAP && ws.TrapCause() > 0:
		switch ws.TrapCause() {
		case unix.PTRACE_EVENT_SECCOMP:
			return 0, t.syscall(id, th)
		case unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK, unix.PTRACE_EVENT_CLONE:
			t.announce(id)
		case unix.PTRACE_EVENT_EXEC:
			th.inside = nil
			if old, err := unix.PtraceGetEventMsg(id); err == nil && int(old) != id {
				th.pending = t.pendingOf(int(old)) // another thread than the first called execve
			}
		}
		return 0, nil
	case sig == unix.SIGSTOP && !th.started:
		th.started = true
		return 0, nil
	}
	return int(sig), nil
}

// pendingOf removes a thread and returns its pending call.
func (t *tracer) pendingOf(id int) *call {
	if th := t.threads[id]; th != nil {
		delete(t.threads, id)
		return th.pending
	}
	return nil
}

// endTracing kills the remaining threads or detaches from them. It can detach from a stopped thread only, so that it sends
// a signal to each. A new thread stops without a signal. It kills filtered threads, because they cannot work without a tracer.
func (t *tracer) endTracing(kill bool) {
	for id, th := range t.threads {
		switch {
		case kill || th.filtered || th.installing != nil:
			tkill(id, unix.SIGKILL)
		case th.started:
			tkill(id, unix.SIGSTOP)
		}
	}
	for len(t.threads) > 0 {
		var ws unix.WaitStatus
		id, err := t.next(&ws)
		switch {
		case err != nil:
			return
		case !ws.Stopped():
			t.forget(id)
		case kill || t.threads[id] != nil && t.threads[id].filtered:
			tkill(id, unix.SIGKILL)
			_ = unix.PtraceCont(id, int(unix.SIGKILL))
		case ws.StopSignal() == unix.SIGSTOP:
			_ = unix.PtraceDetach(id)
			t.forget(id)
		case ws.StopSignal() == unix.SIGTRAP|0x80 || ws.TrapCause() > 0:
			if c := ws.TrapCause(); c == unix.PTRACE_EVENT_FORK || c == unix.PTRACE_EVENT_VFORK || c == unix.PTRACE_EVENT_CLONE {
				t.announce(id)
			}
			_ = unix.PtraceCont(id, 0)
		default:
			_ = unix.PtraceCont(id, int(ws.StopSignal()))
		}
	}
}

func tkill(id int, signal unix.Signal) {
	_, _, _ = unix.RawSyscall(unix.SYS_TKILL, uintptr(id), uintptr(signal), 0) // ESRCH: it has ended
}

// syscallInfo is struct ptrace_syscall_info.
type syscallInfo struct {
	op   uint8
	_    [3]uint8
	arch uint32
	_    [2]uint64
	data [8]uint64 // entry, and stop of a filter: number and arguments; exit: result
}

// syscall handles the entry into a system call or the return from it.
func (t *tracer) syscall(id int, th *thread) error {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(id), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	switch {
	case errno == unix.ESRCH: // killed
		return nil
	case errno != 0:
		return fmt.Errorf("read a system call: %w", errno)
	case th.installing != nil:
		if info.op == unix.PTRACE_SYSCALL_INFO_EXIT {
			return t.installed(id, th, int64(info.data[0]))
		}
	case info.op == unix.PTRACE_SYSCALL_INFO_ENTRY || info.op == unix.PTRACE_SYSCALL_INFO_SECCOMP:
		th.pending = nil
		if info.arch != auditArch {
			t.markIncomplete("a program of another architecture ran")
			return nil
		}
		if r, ok := t.rules[info.data[0]]; ok {
			th.pending = t.enter(id, th, r, [6]uint64(info.data[1:7]))
		}
	case info.op == unix.PTRACE_SYSCALL_INFO_EXIT && th.pending != nil:
		t.result(id, th, th.pending, int64(info.data[0]))
		th.pending = nil
	}
	return nil
}

// markIncomplete records the first reason why the trace is incomplete.
func (t *tracer) markIncomplete(why string) {
	if t.incomplete == "" {
		t.incomplete = why
	}
}

// trace returns the sorted accesses, without the names that the command wrote.
func (t *tracer) trace() *Trace {
	all := slices.SortedFunc(maps.Keys(t.seen), func(a, b Access) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Ino, b.Ino))
	})
	all = slices.DeleteFunc(all, func(a Access) bool { return t.written[name{a.Path, a.Inside}] })
	return &Trace{Accesses: all, Incomplete: t.incomplete}
}
