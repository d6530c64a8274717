package toolchain

import (
	"path/filepath"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// defaultPath is where programs are if the environment does not say.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func searchPath(env func(string) string) string {
	if path := env("PATH"); path != "" {
		return path
	}
	return defaultPath
}

// baseEnviron is what every compiler gets. HOME and TMPDIR serve wrappers that start containers; LD_LIBRARY_PATH the
// compilers of module systems that do not start without it.
func baseEnviron(env func(string) string) []string {
	out := []string{"LC_ALL=C", "SOURCE_DATE_EPOCH=0", "PATH=" + searchPath(env)}
	return append(out, present(env, "HOME", "TMPDIR", "LD_LIBRARY_PATH")...)
}

// present returns the variables that are set, as NAME=value.
func present(env func(string) string, names ...string) []string {
	var out []string
	for _, name := range names {
		if value := env(name); value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// environ is the closed list for the compiler at p. The variables in it that choose what the compiler uses are part
// of the question that the Memo answers; see search.question.
func (f *Finder) environ(v target.Vendor, p place) []string {
	out := baseEnviron(f.env)
	switch v {
	case target.HIP:
		// Without a word on the architecture hipcc looks for GPUs each time, by a script of 50 ms.
		out = append(out, "HIP_PLATFORM=amd", "HCC_AMDGPU_TARGET="+anyArch)
		out = append(out, present(f.env, "HIP_PATH", "HIP_CLANG_PATH", "HIP_DEVICE_LIB_PATH")...)
		if p.rocm != "" {
			return append(out, "ROCM_PATH="+filepath.Clean(p.rocm))
		}
		return append(out, present(f.env, "ROCM_PATH")...)
	case target.CUDA:
		return append(out, present(f.env, "NVCC_CCBIN")...)
	}
	return out
}

// lookupEnv returns the value of a variable in a list of NAME=value.
func lookupEnv(list []string, name string) string {
	for _, entry := range list {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
