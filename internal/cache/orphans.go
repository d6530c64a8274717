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

// If a builder is killed, the kernel kills the compiler driver but not its children: the
// compiler proper would go on for a result that no process needs. All of them have the
// stage of their job as TMPDIR, so that a sweep of the stage finds them.

// orphanRounds is how often endOrphans searches for processes: one may have started another
// just before it ended.
const orphanRounds = 5

// orphanPatience is how long endOrphans waits for killed processes to disappear.
const orphanPatience = time.Second

// endOrphans kills this user's processes that work for the job of a stage. The
// caller holds the stage's lock, so that the job itself is dead.
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

// endOrphan kills the process if it works in the stage. The process descriptor guarantees that
// the number still means the same process.
func endOrphan(pid int, stage string, at os.FileInfo) bool {
	if !worksIn(pid, stage, at) {
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
	if !worksIn(pid, stage, at) || unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0) != nil {
		return false
	}
	awaitEnd(fd)
	return true
}

// awaitEnd waits until the process of a descriptor has ended, for at most orphanPatience.
func awaitEnd(fd int) {
	gone := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for start := time.Now(); time.Since(start) < orphanPatience; {
		_, err := unix.Poll(gone, int(orphanPatience.Milliseconds()))
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// worksIn reports whether the stage is the folder for temporary files of a process, under
// any name.
func worksIn(pid int, stage string, at os.FileInfo) bool {
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
