//go:build linux && (amd64 || arm64)

package process

import "golang.org/x/sys/unix"

// commonRules returns the system calls that all architectures have.
func commonRules() map[uint64]rule {
	return map[uint64]rule{
		unix.SYS_OPENAT:     {opens, 0, 1, 2},
		unix.SYS_OPENAT2:    {opens, 0, 1, flagsPointer},
		unix.SYS_STATX:      {action: queries, dir: 0, name: 1},
		sysFstatat:          {action: queries, dir: 0, name: 1},
		unix.SYS_FACCESSAT:  {action: queries, dir: 0, name: 1},
		unix.SYS_FACCESSAT2: {action: queries, dir: 0, name: 1},
		unix.SYS_READLINKAT: {action: follows, dir: 0, name: 1},
		unix.SYS_EXECVE:     {action: runs, dir: -1},
		unix.SYS_EXECVEAT:   {action: runs, dir: 0, name: 1},
		unix.SYS_MKDIRAT:    {action: writes, dir: 0, name: 1},
		unix.SYS_MKNODAT:    {action: writes, dir: 0, name: 1},
		unix.SYS_UNLINKAT:   {action: writes, dir: 0, name: 1},
		unix.SYS_RENAMEAT2:  {action: writes, dir: 2, name: 3},
		unix.SYS_RENAMEAT:   {action: writes, dir: 2, name: 3},
		unix.SYS_LINKAT:     {action: writes, dir: 2, name: 3},
		unix.SYS_SYMLINKAT:  {action: writes, dir: 1, name: 2},
	}
}
