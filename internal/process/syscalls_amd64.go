//go:build linux

package process

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_X86_64
	sysFstatat = unix.SYS_NEWFSTATAT
)

// platformRules returns the system calls that take names, by number.
func platformRules() map[uint64]rule {
	r := commonRules()
	r[unix.SYS_OPEN] = rule{opens, -1, 0, 1}
	r[unix.SYS_CREAT] = rule{opens, -1, 0, flagsCreate}
	for _, nr := range []uint64{unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS} {
		r[nr] = rule{action: queries, dir: -1}
	}
	r[unix.SYS_READLINK] = rule{action: follows, dir: -1}
	for _, nr := range []uint64{unix.SYS_MKDIR, unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_MKNOD} {
		r[nr] = rule{action: writes, dir: -1}
	}
	for _, nr := range []uint64{unix.SYS_RENAME, unix.SYS_LINK, unix.SYS_SYMLINK} {
		r[nr] = rule{action: writes, dir: -1, name: 1}
	}
	return r
}
