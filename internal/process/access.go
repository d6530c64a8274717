//go:build linux

package process

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// action is the use that a system call makes of its name argument.
type action byte

const (
	opens   action = iota // open(2) and similar calls
	queries               // stat(2), access(2) and similar calls
	follows               // readlink(2)
	runs                  // execve(2)
	writes                // creates or removes the name
)

// rule describes a system call that takes a name.
type rule struct {
	action action
	dir    int // index of the argument with the folder's descriptor; negative: none
	name   int // index of the argument with the name
	flags  int // index of the argument with open's flags; see flagsPointer and flagsCreate
}

// Values of rule.flags for flags that are not an argument.
const (
	flagsPointer = -1 // args[2] points to them: openat2
	flagsCreate  = -2 // they are fixed: creat
)

// enter reads the arguments of a system call at its entry. It returns nil if the tracer ignores the call.
func (t *tracer) enter(id int, th *thread, r rule, args [6]uint64) *call {
	text, err := readString(id, args[r.name])
	if err != nil {
		t.unreadable(err)
		return nil
	}
	if text == "" {
		return nil
	}
	var ok bool
	c := &call{rule: r, args: args}
	if c.path, ok = t.absolute(id, th, r, args, text); !ok {
		return nil
	}
	if r.action == runs {
		_ = unix.Stat(proc(id, "root")+c.path.path, &c.file)
	}
	if r.flags == flagsPointer {
		if c.args[2], err = readWord(id, args[2]); err != nil {
			t.unreadable(err)
			return nil
		}
	}
	return c
}

// unreadable marks the trace as incomplete because an argument could not be read. It ignores bad addresses, because the
// system call fails too, and killed threads, because they make no system call.
func (t *tracer) unreadable(err error) {
	if err != unix.EFAULT && err != unix.ESRCH {
		t.markIncomplete("the memory of a traced process cannot be read: " + err.Error())
	}
}

// absolute returns the absolute path of a name that may be relative to a folder.
func (t *tracer) absolute(id int, th *thread, r rule, args [6]uint64, text string) (name, bool) {
	if path.IsAbs(text) {
		return name{CleanPath(text), t.inside(id, th)}, true
	}
	base := proc(id, "cwd")
	if r.dir >= 0 && int32(args[r.dir]) != unix.AT_FDCWD {
		base = proc(id, "fd", strconv.Itoa(int(int32(args[r.dir]))))
	}
	dir, err := os.Readlink(base)
	if err != nil {
		t.markIncomplete("a folder of a traced process cannot be read: " + err.Error())
		return name{}, false
	}
	if !path.IsAbs(dir) { // as for a bad descriptor
		return name{}, false
	}
	return name{CleanPath(dir + "/" + text), t.inside(id, th)}, true
}

// result records the access of a system call.
func (t *tracer) result(id int, th *thread, c *call, result int64) {
	errno := unix.Errno(max(-result, 0))
	absent := errno == unix.ENOENT || errno == unix.ENOTDIR
	switch {
	case absent:
		t.note(Missing, c.path)
	case c.rule.action == writes:
		if errno == 0 {
			t.wrote(c.path)
		}
	case c.rule.action == opens:
		t.opened(id, c, result)
	case c.rule.action == runs && errno == 0:
		t.executed(id, th, c)
	case c.rule.action == follows && errno == 0:
		t.note(Linked, c.path)
	default:
		t.note(Found, c.path)
	}
}

// maxNames bounds the names that a trace keeps. Compilers look up a few thousand.
const maxNames = 100_000

func (t *tracer) note(k Kind, n name) { t.add(Access{Kind: k, Path: n.path, Inside: n.inside}) }

func (t *tracer) add(a Access) {
	if t.hasRoom() {
		t.seen[a] = true
	}
}

func (t *tracer) wrote(n name) {
	if t.hasRoom() {
		t.written[n] = true
	}
}

func (t *tracer) hasRoom() bool {
	if len(t.seen)+len(t.written) < maxNames {
		return true
	}
	t.markIncomplete(fmt.Sprintf("it looked up more than %d names", maxNames))
	return false
}

// opened records the access of a call that opened a file: read, listed or written.
func (t *tracer) opened(id int, c *call, fd int64) {
	flags := c.flags()
	var st unix.Stat_t
	switch {
	case fd < 0 || flags&unix.O_PATH != 0:
		t.note(Found, c.path)
	case flags&(unix.O_ACCMODE|unix.O_CREAT|unix.O_TRUNC) != unix.O_RDONLY:
		t.wrote(c.path)
	case unix.Stat(proc(id, "fd", strconv.FormatInt(fd, 10)), &st) != nil:
		t.markIncomplete("a file of a traced process cannot be examined: " + c.path.path)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		t.note(Listed, c.path)
	case st.Mode&unix.S_IFMT == unix.S_IFREG:
		t.read(c.path, &st, false)
	}
}

func (t *tracer) read(n name, st *unix.Stat_t, program bool) {
	dev := uint64(st.Dev) //nolint:unconvert // 32 bits wide elsewhere
	t.add(Access{Kind: Read, Path: n.path, Inside: n.inside, Program: program, Dev: dev, Ino: st.Ino})
}

// executed records a program as read, and its interpreter if it is a script.
func (t *tracer) executed(id int, th *thread, c *call) {
	if c.file.Ino != 0 {
		t.read(c.path, &c.file, true)
	}
	var st unix.Stat_t
	exe, err := os.Readlink(proc(id, "exe"))
	if err != nil || unix.Stat(proc(id, "exe"), &st) != nil {
		t.markIncomplete("a program of a traced process cannot be examined: " + c.path.path)
		return
	}
	if st.Ino != c.file.Ino || st.Dev != c.file.Dev {
		t.read(name{exe, t.inside(id, th)}, &st, true)
	}
	t.install(id, th, exe)
}

// flags returns the flags of a call that opens a file.
func (c *call) flags() uint64 {
	switch c.rule.flags {
	case flagsPointer:
		return c.args[2]
	case flagsCreate:
		return unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC
	}
	return c.args[c.rule.flags]
}

// inside reports whether a thread is in a container; see Access.Inside.
func (t *tracer) inside(id int, th *thread) bool {
	if th.inside == nil {
		inside := inContainer(id)
		th.inside = &inside
	}
	return *th.inside
}

// inContainer reports whether a process has another root folder or other mounts than this one.
func inContainer(id int) bool {
	theirs, err := os.Readlink(proc(id, "ns", "mnt"))
	ours, _ := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil || theirs != ours {
		return true
	}
	var a, b unix.Stat_t
	return unix.Stat(proc(id, "root"), &a) != nil || unix.Stat("/", &b) != nil || a.Dev != b.Dev || a.Ino != b.Ino
}

// proc returns a path in the folder of a process in /proc.
func proc(id int, elements ...string) string {
	return "/proc/" + strconv.Itoa(id) + "/" + strings.Join(elements, "/")
}
