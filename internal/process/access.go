package process

import (
	"bytes"
	"encoding/binary"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// action is what a system call does with the name that it is given.
type action byte

const (
	opens   action = iota // open(2) and its like
	looks                 // asks about a file without its content
	follows               // readlink(2)
	runs                  // execve(2)
	writes                // makes or removes the name
)

// rule describes a system call that takes a name.
type rule struct {
	action action
	dir    int // index of the argument with the folder's descriptor, none if negative
	name   int // index of the argument with the name
	flags  int // index of the argument with open's flags; see flagsOf
}

// Places of flags that are no argument.
const (
	flagsBehind = -1 // args[2] points to them: openat2
	flagsCreate = -2 // creat: they are fixed
)

// enter reads the arguments of a system call that begins; nil if it is of no interest.
func (t *tracer) enter(id int, th *thread, r rule, args [6]uint64) *call {
	text, ok := readString(id, args[r.name])
	if !ok || text == "" {
		return nil
	}
	c := &call{rule: r, args: args}
	if c.path, ok = t.absolute(id, th, r, args, text); !ok {
		return nil
	}
	if r.action == runs {
		_ = unix.Stat(proc(id, "root")+c.path.path, &c.file)
	}
	if r.flags == flagsBehind {
		c.args[2], _ = readWord(id, args[2])
	}
	return c
}

// absolute returns the name with the folder that it is relative to.
func (t *tracer) absolute(id int, th *thread, r rule, args [6]uint64, text string) (name, bool) {
	if path.IsAbs(text) {
		return name{tidy(text), t.inside(id, th)}, true
	}
	base := proc(id, "cwd")
	if r.dir >= 0 && int32(args[r.dir]) != unix.AT_FDCWD {
		base = proc(id, "fd", strconv.Itoa(int(int32(args[r.dir]))))
	}
	dir, err := os.Readlink(base)
	if err != nil {
		t.lose("a folder of a traced process cannot be read: " + err.Error())
		return name{}, false
	}
	if !path.IsAbs(dir) { // such as a bad descriptor's
		return name{}, false
	}
	return name{tidy(dir + "/" + text), t.inside(id, th)}, true
}

// tidy removes "." and ".." from a path where no link can be in the way, and leaves it alone otherwise.
func tidy(p string) string {
	if strings.Contains(p, "..") {
		return p
	}
	return path.Clean(p)
}

// result notes what a system call found.
func (t *tracer) result(id int, th *thread, c *call, result int64) {
	errno := unix.Errno(max(-result, 0))
	absent := errno == unix.ENOENT || errno == unix.ENOTDIR
	switch {
	case absent:
		t.note(Missing, c.path)
	case c.rule.action == writes:
		if errno == 0 {
			t.written[c.path] = true
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

func (t *tracer) note(k Kind, n name) { t.seen[Access{Kind: k, Path: n.path, Inside: n.inside}] = true }

func (t *tracer) opened(id int, c *call, fd int64) {
	flags := c.flags()
	var st unix.Stat_t
	switch {
	case fd < 0 || flags&unix.O_PATH != 0:
		t.note(Found, c.path)
	case flags&(unix.O_ACCMODE|unix.O_CREAT|unix.O_TRUNC) != unix.O_RDONLY:
		t.written[c.path] = true
	case unix.Stat(proc(id, "fd", strconv.FormatInt(fd, 10)), &st) != nil:
		t.lose("a file of a traced process cannot be looked at: " + c.path.path)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		t.note(Listed, c.path)
	case st.Mode&unix.S_IFMT == unix.S_IFREG:
		t.read(c.path, &st, false)
	}
}

func (t *tracer) read(n name, st *unix.Stat_t, program bool) {
	t.seen[Access{Kind: Read, Path: n.path, Inside: n.inside, Program: program, Dev: uint64(st.Dev), Ino: st.Ino}] = true //nolint:unconvert // 32 bits wide elsewhere
}

// executed notes a program, and its interpreter if it is a script.
func (t *tracer) executed(id int, th *thread, c *call) {
	if c.file.Ino != 0 {
		t.read(c.path, &c.file, true)
	}
	var st unix.Stat_t
	exe, err := os.Readlink(proc(id, "exe"))
	if err != nil || unix.Stat(proc(id, "exe"), &st) != nil {
		t.lose("a program of a traced process cannot be looked at: " + c.path.path)
		return
	}
	if st.Ino != c.file.Ino || st.Dev != c.file.Dev {
		t.read(name{exe, t.inside(id, th)}, &st, true)
	}
}

func (c *call) flags() uint64 {
	switch c.rule.flags {
	case flagsBehind:
		return c.args[2]
	case flagsCreate:
		return unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC
	}
	return c.args[c.rule.flags]
}

// inside reports whether a thread sees another filesystem than this process.
func (t *tracer) inside(id int, th *thread) bool {
	if th.inside == nil {
		inside := foreign(id)
		th.inside = &inside
	}
	return *th.inside
}

func foreign(id int) bool {
	theirs, err := os.Readlink(proc(id, "ns", "mnt"))
	ours, _ := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil || theirs != ours {
		return true
	}
	var a, b unix.Stat_t
	return unix.Stat(proc(id, "root"), &a) != nil || unix.Stat("/", &b) != nil || a.Dev != b.Dev || a.Ino != b.Ino
}

func proc(id int, elements ...string) string {
	return "/proc/" + strconv.Itoa(id) + "/" + strings.Join(elements, "/")
}

// readString reads a C string from a stopped thread's memory, page by page: what is behind a page may not be mapped.
func readString(id int, at uint64) (string, bool) {
	page := uint64(os.Getpagesize())
	var out []byte
	for len(out) < unix.PathMax {
		chunk := make([]byte, page-at%page)
		if !readMemory(id, at, chunk) {
			return "", false
		}
		if i := bytes.IndexByte(chunk, 0); i >= 0 {
			return string(append(out, chunk[:i]...)), true
		}
		out = append(out, chunk...)
		at += uint64(len(chunk))
	}
	return "", false
}

func readWord(id int, at uint64) (uint64, bool) {
	var b [8]byte
	ok := readMemory(id, at, b[:])
	return binary.NativeEndian.Uint64(b[:]), ok
}

func readMemory(id int, at uint64, to []byte) bool {
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(len(to))
	n, err := unix.ProcessVMReadv(id, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(to)}}, 0)
	return err == nil && n == len(to)
}
