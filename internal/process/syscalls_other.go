//go:build !amd64 && !arm64

package process

const auditArch = 0

// platformRules returns none: system calls of this architecture are not known, and nothing can be traced.
func platformRules() map[uint64]rule { return nil }
