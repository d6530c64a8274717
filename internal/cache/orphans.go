//go:build linux

package cache

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// If a builder is killed, the kernel kills the compiler driver but not the driver's children.
// The compiler proper would continue although no process needs its result. All these processes
// have the stage of their job as TMPDIR, by which a sweep of the stage finds them.

// orphanRounds is the number of searches of endOrphans, because a process may start another one
// just before it is killed.
const orphanRounds = 5

// orphanWait is the time for which endOrphans waits for the end of a killed process.
const orphanWait = time.Second

// endOrphans kills this user's processes that run in a stage. The caller holds the lock of the
// stage, so that the job itself is dead.
func endOrphans(stage string) {
	at, err := os.Stat(stage)
	if err != nil {
		return
	}
	for range orphanRounds {
		ended := 0
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err == nil && pid != os.Getpid() && endOrphan(pid, stage, at) {
				ended++
			}
		}
		if ended == 0 {
			return
		}
	}
}

// endOrphan kills the process if it runs in the stage, and reports whether it did. The process
// descriptor guarantees that the number belongs to the same process.
func endOrphan(pid int, stage string, at os.FileInfo) bool {
	if !runsIn(pid, stage, at) {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, syscall.ENOSYS) { // before Linux 5.3
		return syscall.Kill(pid, syscall.SIGKILL) == nil
	}
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	if !runsIn(pid, stage, at) || unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0) != nil {
		return false
	}
	awaitEnd(fd)
	return true
}

// awaitEnd waits until the process of a descriptor has ended, for at most orphanWait.
func awaitEnd(fd int) {
	gone := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for start := time.Now(); time.Since(start) < orphanWait; {
		_, err := unix.Poll(gone, int(orphanWait.Milliseconds()))
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// runsIn reports whether the stage, under any path, is the folder for temporary files of a
// process.
func runsIn(pid int, stage string, at os.FileInfo) bool {
	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		dir, ok := bytes.CutPrefix(entry, []byte("TMPDIR="))
		if !ok || filepath.Base(string(dir)) != filepath.Base(stage) {
			continue
		}
		info, err := os.Stat(string(dir))
		return err == nil && os.SameFile(info, at)
	}
	return false
}
