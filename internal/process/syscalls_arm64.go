//go:build linux

package process

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_AARCH64
	sysFstatat = unix.SYS_FSTATAT
)

// platformRules returns the system calls that take names, by number.
func platformRules() map[uint64]rule { return commonRules() }
