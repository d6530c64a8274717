//go:build linux

package process

import (
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"
)

// A filter of seccomp(2) stops a thread only at the system calls that take names. Without it a traced thread stops twice
// at each system call, and Clang writes its commands with a call for each character.
//
// A process and its children keep a filter until they end, and the calls that it stops at fail if no tracer is attached. So
// the tracer filters only programs that leave no process behind. It must not filter launchers such as sccache, which start
// a server, and their parents.

// filteredPrograms matches the file names of programs that are filtered.
var filteredPrograms = regexp.MustCompile(`^clang(-\d+)?$`)

// installation is a filter that is being installed. The thread executes system calls of the tracer meanwhile.
type installation struct {
	regs   unix.PtraceRegs // of the program
	code   []byte          // of the program, where the tracer put an instruction
	filter uint64          // address of the filter
	step   int             // index of the call that the thread executes: seccomp, prctl, seccomp
}

// instruction is SYSCALL.
var instruction = []byte{0x0f, 0x05}

// redZone is the number of bytes below the stack pointer that a program may use.
const redZone = 128

// install begins to install the filter in a stopped thread that has executed the program exe, and nothing of it yet. If that
// fails, the thread continues without a filter.
func (t *tracer) install(id int, th *thread, exe string) {
	if th.filtered || !filteredPrograms.MatchString(path.Base(exe)) {
		return
	}
	in := &installation{code: make([]byte, len(instruction))}
	if unix.PtraceGetRegs(id, &in.regs) != nil {
		return
	}
	code, filter := uintptr(in.regs.Rip), nameFilter(t.rules)
	if _, err := unix.PtracePeekText(id, code, in.code); err != nil {
		return
	}
	in.filter = (in.regs.Rsp - redZone - uint64(len(filter))) &^ 15
	binary.NativeEndian.PutUint64(filter[8:], in.filter+filterHeader)
	if _, err := unix.PtracePokeData(id, uintptr(in.filter), filter); err != nil {
		return
	}
	if _, err := unix.PtracePokeText(id, code, instruction); err != nil {
		return
	}
	if in.seccomp(id) == nil { // it fails if the thread has been killed
		th.installing = in
	}
}

// seccomp makes the thread execute the call that installs the filter.
func (in *installation) seccomp(id int) error {
	return in.call(id, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, in.filter)
}

// call makes the thread execute a system call when it continues.
func (in *installation) call(id int, nr, a, b, c uint64) error {
	regs := in.regs
	regs.Orig_rax = ^uint64(0) // there is no call to restart
	regs.Rax, regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8 = nr, a, b, c, 0, 0
	return unix.PtraceSetRegs(id, &regs)
}

// installed handles the end of a call of the installation. After the last one the thread continues with its program.
func (t *tracer) installed(id int, th *thread, result int64) error {
	in := th.installing
	in.step++
	switch {
	case in.step == 1 && unix.Errno(-result) == unix.EACCES:
		// A user other than root must first give up the privileges of set-user-ID programs, which traced programs lack anyway.
		return alive(in.call(id, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0))
	case in.step == 2:
		return alive(in.seccomp(id))
	}
	th.installing, th.filtered = nil, result == 0
	if _, err := unix.PtracePokeText(id, uintptr(in.regs.Rip), in.code); err != nil {
		return alive(err)
	}
	in.regs.Orig_rax = ^uint64(0)
	return alive(unix.PtraceSetRegs(id, &in.regs))
}

// alive returns the error unless it reports that the thread has been killed.
func alive(err error) error {
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("install a filter: %w", err)
}

// filterHeader is the size of struct sock_fprog, which precedes the instructions of a filter, in bytes.
const filterHeader = 16

// nameFilter returns struct sock_fprog, without the address of the instructions, and the instructions. They stop a thread at
// the system calls of the rules, and at calls of another architecture.
func nameFilter(rules map[uint64]rule) []byte {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		give   = unix.BPF_RET | unix.BPF_K
		number = 0 // offsets in struct seccomp_data
		arch   = 4
		toStop = 2 // from the first comparison to the instruction that stops, without comparisons
	)
	n := len(rules)
	code := []unix.SockFilter{
		{Code: load, K: arch},
		{Code: equal, K: auditArch, Jf: uint8(n + toStop)},
		{Code: load, K: number},
	}
	for i, nr := range slices.Sorted(maps.Keys(rules)) {
		code = append(code, unix.SockFilter{Code: equal, K: uint32(nr), Jt: uint8(n - i)})
	}
	code = append(code, unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ALLOW}, unix.SockFilter{Code: give, K: unix.SECCOMP_RET_TRACE})
	out := binary.NativeEndian.AppendUint16(nil, uint16(len(code)))
	out = append(out, make([]byte, filterHeader-len(out))...)
	for _, c := range code {
		out = binary.NativeEndian.AppendUint16(out, c.Code)
		out = append(out, c.Jt, c.Jf)
		out = binary.NativeEndian.AppendUint32(out, c.K)
	}
	return out
}
