package toolchain

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// Pass is what one run of a compiler makes of a unit.
type Pass string

// The passes. A unit is compiled whole, or for the host and for the device apart.
const (
	Whole  Pass = ""       // the object, with all code in it
	Host   Pass = "host"   // the object without device code: the same for every target
	Device Pass = "device" // the device code for the target, a code object
)

// firstApart is the Clang from which on each unit has a symbol of its own for its device code, __hip_fatbin_ and a hash of
// -cuid. With older versions all units of a library share one name, so that the linker cannot distinguish their code.
const firstApart = 19

// Passes says in which runs a unit with these flags is compiled, the host's before the device's.
func (tc *Toolchain) Passes(flags []string) []Pass {
	if tc.Vendor != target.HIP || tc.clangMajor() < firstApart || slices.ContainsFunc(flags, ruling) {
		return []Pass{Whole}
	}
	return []Pass{Host, Device}
}

// ruling says that a flag of a module itself rules over passes, architectures or the device code's form.
func ruling(flag string) bool {
	for _, prefix := range []string{"-fgpu-rdc", "-fcuda-rdc", "-fno-gpu-rdc", "-save-temps", "--save-temps", "--cuda-", "--offload", "-foffload", "--gpu-", "--no-gpu-", "-flto"} {
		if strings.HasPrefix(flag, prefix) {
			return true
		}
	}
	return false
}

var clangVersion = regexp.MustCompile(`clang version (\d+)\.`)

// clangMajor is 0 for other compilers.
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

// Identity is the digest of what takes part in a pass. That of the host's is the same for all targets.
func (tc *Toolchain) Identity(p Pass) string {
	if p == Host {
		return tc.HostDigest
	}
	return tc.Digest
}

// For names what a pass compiles for: the target, or with all of the vendor's targets the host.
func (p Pass) For(t target.Target) string {
	if p == Host {
		return string(t.Vendor()) + " host"
	}
	return t.String()
}
