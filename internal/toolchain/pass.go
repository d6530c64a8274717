package toolchain

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// Pass is the half of a unit that one run of a compiler makes, or the whole unit.
type Pass string

// The passes. A unit is compiled in one run, or separately for the host and the device.
const (
	Whole  Pass = ""       // the object, with all code in it
	Host   Pass = "host"   // the object without device code: the same for every target
	Device Pass = "device" // the device code for the target, a code object
)

// firstApart is the first version of Clang in which each unit has its own symbol for its device code: __hip_fatbin_ and a
// hash of -cuid. In older versions all units of a library share one symbol, so that the linker cannot distinguish their
// code.
const firstApart = 19

// Passes returns the passes in which a unit with these flags is compiled, the host's before the device's.
func (tc *Toolchain) Passes(flags []string) []Pass {
	if tc.Vendor != target.HIP || tc.clangMajor() < firstApart || slices.ContainsFunc(flags, ruling) {
		return []Pass{Whole}
	}
	return []Pass{Host, Device}
}

// ruling reports whether a flag of a module controls passes, architectures or the form of device code.
func ruling(flag string) bool {
	for _, prefix := range []string{"-fgpu-rdc", "-fcuda-rdc", "-fno-gpu-rdc", "-save-temps", "--save-temps", "--cuda-", "--offload", "-foffload", "--gpu-", "--no-gpu-", "-flto"} {
		if strings.HasPrefix(flag, prefix) {
			return true
		}
	}
	return false
}

var clangVersion = regexp.MustCompile(`clang version (\d+)\.`)

// clangMajor returns Clang's major version, 0 for other compilers.
func (tc *Toolchain) clangMajor() int {
	m := clangVersion.FindStringSubmatch(tc.VersionLine)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil { // too many digits
		return 0
	}
	return n
}

// Identity returns the digest of the files that take part in a pass. The host pass has the same for all targets.
func (tc *Toolchain) Identity(p Pass) string {
	if p == Host {
		return tc.HostDigest
	}
	return tc.Digest
}

// For names the targets of a pass: the target itself or, for a host pass, all targets of the vendor.
func (p Pass) For(t target.Target) string {
	if p == Host {
		return string(t.Vendor()) + " host"
	}
	return t.String()
}
