package toolchain

import (
	"fmt"
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

// shardPass returns the device pass that compiles shard k of n, some of a unit's kernels: "device 2/7".
func shardPass(k, n int) Pass { return Pass(fmt.Sprintf("%s %d/%d", Device, k, n)) }

// Shard returns the number of the pass among the n device passes of a unit, from 1 on. n is 1 for a unit with one device pass, and 0 if
// the pass makes no device code alone.
func (p Pass) Shard() (k, n int) {
	if p == Device {
		return 1, 1
	}
	if _, err := fmt.Sscanf(string(p), string(Device)+" %d/%d", &k, &n); err != nil {
		return 0, 0
	}
	return k, n
}

// MakesDeviceCode reports whether the pass makes device code alone.
func (p Pass) MakesDeviceCode() bool { return strings.HasPrefix(string(p), string(Device)) }

// minPassVersion is the first major version of Clang in which each unit has its own symbol for its device code: __hip_fatbin_ and a
// hash of -cuid. In older versions all units of a library share one symbol, so that the linker cannot distinguish their
// code.
const minPassVersion = 19

// twoPasses is the flag of CUDA sources whose host code a C++ compiler takes: csrc/include/aiter/cuda_host.h.
const twoPasses = "-DAITER_TWO_PASSES"

// shardsFlag, followed by a number of shards, is the flag of CUDA sources whose device code is compiled in that many runs of nvcc:
// csrc/include/aiter/gpu/codegen.h.
const shardsFlag = "-DAITER_SHARDS="

// maxShards bounds the number of shards of a unit.
const maxShards = 64

// shards returns the number of device passes that flags ask for.
func shards(flags []string) int {
	n := 1
	for _, flag := range flags {
		if text, ok := strings.CutPrefix(flag, shardsFlag); ok {
			if given, err := strconv.Atoi(text); err == nil {
				n = min(max(given, 1), maxShards)
			}
		}
	}
	return n
}

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
	n := 1
	if tc.Vendor == target.CUDA {
		n = shards(flags)
	}
	if n == 1 {
		return []Pass{Host, Device}
	}
	passes := []Pass{Host}
	for k := 1; k <= n; k++ {
		passes = append(passes, shardPass(k, n))
	}
	return passes
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

// FilesOf returns the files that Identity covers.
func (tc *Toolchain) FilesOf(p Pass) []File {
	if p == Host {
		return tc.HostFiles
	}
	return tc.Files
}

// For returns the target of a pass for keys and messages. The host pass for all targets has one: "hip host".
func (p Pass) For(t target.Target) string {
	if p == Host {
		return string(t.Vendor()) + " host"
	}
	return t.String()
}
