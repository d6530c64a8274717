//go:build linux && !amd64 && !arm64

package process

const auditArch = 0

// platformRules returns nil: nothing can be traced on this architecture.
func platformRules() map[uint64]rule { return nil }
