package toolchain

import (
	"path/filepath"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// defaultPath is the search path for programs if the environment has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func searchPath(env func(string) string) string {
	if path := env("PATH"); path != "" {
		return path
	}
	return defaultPath
}

// baseEnviron returns the variables that every compiler gets. Wrappers that start containers need HOME and TMPDIR;
// compilers of module systems need LD_LIBRARY_PATH to start.
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

// environ returns the complete environment for the compiler at p. All variables except TMPDIR are part of the query
// that the Memo answers; see search.query.
func (f *Finder) environ(v target.Vendor, p place) []string {
	out := baseEnviron(f.env)
	switch v {
	case target.HIP:
		// Without HCC_AMDGPU_TARGET hipcc searches for GPUs each time, by a script that takes 50 ms.
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
