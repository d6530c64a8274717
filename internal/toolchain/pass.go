package toolchain

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// Pass is the host or the device half of a unit, or the whole unit.
type Pass string

// The passes. A unit is compiled in one run, or in two runs for the host and the device.
const (
	Whole  Pass = ""       // makes an object with all code
	Host   Pass = "host"   // makes an object without device code, which is equal for all targets
	Device Pass = "device" // makes a code object for the target, for CUDA in a fatbin
)

// minPassVersion is the first major version of Clang in which each unit has its own symbol for its device code: __hip_fatbin_ and a
// hash of -cuid. In older versions all units of a library share one symbol, so that the linker cannot distinguish their
// code.
const minPassVersion = 19

// twoPasses is the flag of CUDA sources whose host code a C++ compiler takes: csrc/include/aiter/cuda_host.h.
const twoPasses = "-DAITER_TWO_PASSES"

// Passes returns the passes in which a unit with these flags is compiled, the host's before the device's.
func (tc *Toolchain) Passes(flags []string) []Pass {
	divisible := false
	switch tc.Vendor {
	case target.HIP:
		divisible = tc.clangMajor() >= minPassVersion
	case target.CUDA:
		divisible = slices.Contains(flags, twoPasses)
	}
	if !divisible || slices.ContainsFunc(flags, controlsPasses) {
		return []Pass{Whole}
	}
	return []Pass{Host, Device}
}

// controlsPasses reports whether a flag of a module controls passes, architectures or the form of device code.
func controlsPasses(flag string) bool {
	for _, prefix := range []string{
		"-fgpu-rdc", "-fcuda-rdc", "-fno-gpu-rdc", "-save-temps", "--save-temps", "--cuda-", "--offload", "-foffload", "--gpu-",
		"--no-gpu-", "-flto",
		"-rdc", "--relocatable-device-code", "-dc", "--device-c", "-dlto", "-gencode", "--generate-code", "-arch", "-code", "-keep", "--keep",
	} {
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

// Identity returns the digest of the files that a pass uses. It is equal for the host passes of all targets.
func (tc *Toolchain) Identity(p Pass) string {
	if p == Host {
		return tc.HostDigest
	}
	return tc.Digest
}

// For returns the target of a pass for keys and messages. The host pass for all targets has one: "hip host".
func (p Pass) For(t target.Target) string {
	if p == Host {
		return string(t.Vendor()) + " host"
	}
	return t.String()
}
