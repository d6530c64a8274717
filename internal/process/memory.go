//go:build linux

package process

import (
	"bytes"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// readString reads a C string from a stopped thread's memory, page by page: the next page may not be mapped.
func readString(id int, at uint64) (string, error) {
	page := uint64(os.Getpagesize())
	var out []byte
	for len(out) < unix.PathMax {
		chunk := make([]byte, page-at%page)
		if err := readMemory(id, at, chunk); err != nil {
			return "", err
		}
		if i := bytes.IndexByte(chunk, 0); i >= 0 {
			return string(append(out, chunk[:i]...)), nil
		}
		out = append(out, chunk...)
		at += uint64(len(chunk))
	}
	return "", unix.EFAULT // the system call fails too, with ENAMETOOLONG
}

// readWord reads 8 bytes from a stopped thread's memory.
func readWord(id int, at uint64) (uint64, error) {
	var b [8]byte
	err := readMemory(id, at, b[:])
	return binary.NativeEndian.Uint64(b[:]), err
}

// readMemory fills the slice from a stopped thread's memory. Filters of system calls, such as those of older container
// runtimes, allow ptrace(2) and forbid process_vm_readv(2).
func readMemory(id int, at uint64, to []byte) error {
	err := readRemote(id, at, to)
	if err == nil || err == unix.EFAULT || err == unix.ESRCH {
		return err
	}
	_, err = unix.PtracePeekData(id, uintptr(at), to)
	return err
}

func readRemote(id int, at uint64, to []byte) error {
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(len(to))
	n, err := unix.ProcessVMReadv(id, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(to)}}, 0)
	if err == nil && n < len(to) {
		return unix.EFAULT
	}
	return err
}
