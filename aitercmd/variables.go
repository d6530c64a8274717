package aitercmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/buildfarm"
	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/spelling"
)

// variable is an environment variable that aiter or its kernels read.
type variable struct {
	name   string
	usage  string
	preset string // the default in words
	flag   string // the flag that wins over the variable, "" for none
}

// variables returns all variables except those of other programs, such as HOME and PATH.
func variables() []variable {
	return []variable{
		{"AITER_JIT_DIR", "the kernel cache", "$XDG_CACHE_HOME/aiter/jit, else ~/.cache/aiter/jit", "cache-dir"},
		{"AITER_JIT_PATH", "read-only caches: a list of folders, separated by colons", "none", "cache-path"},
		{"AITER_JIT_REMOTE", "the set of kernels that is pulled before a compile: oci://HOST/REPOSITORY:TAG or https://HOST/FOLDER", "none", ""},
		{"AITER_JIT_KEYS", "file or folder of public keys in PEM; a set that one of them signed is trusted", "none", "keys"},
		{"AITER_JIT_REMOTE_WAIT", "longest time that a pull may delay a build", "20s", ""},
		{"AITER_JIT_REMOTE_CERTS", "certificates: folders HOST:PORT with ca.crt, client.cert, client.key", fleet.DefaultCerts, ""},
		{"AITER_JIT_EXECUTOR", "the build farm of build and push: grpcs://HOST:PORT/INSTANCE", "none", "executor"},
		{"AITER_JIT_EXECUTOR_WAIT", "longest time without an answer of the farm", buildfarm.DefaultWait.String(), ""},
		{"AITER_JIT_EXECUTOR_PLATFORM", "properties of a farm's workers: NAME=VALUE,...; {toolchain} is the digest of the compiler", "none", ""},
		{"AITER_JIT_EXECUTOR_TOKEN", "a file with a bearer token for the farm", "none", ""},
		{"AITER_JIT_EXECUTOR_CERTS", "a folder with ca.crt, client.cert, client.key for the farm", "none", ""},
		{"AITER_JIT_MAX_SIZE", "size limit of the kernel cache; 0: no limit", "10GB", "cache-max-size"},
		{"AITER_JIT_MAX_AGE", "longest time that an unused artifact stays in the cache", "none", ""},
		{"AITER_JIT_MAX_COUNT", "largest number of artifacts in the cache", "none", ""},
		{"AITER_META_DIR", "folders with modules, separated by colons; a checkout replaces the built-in modules", "the sources in the program",
			"root"},
		{"AITER_CONFIG", "the configuration, relative to the only folder of AITER_META_DIR", settings.DefaultConfig + " or " +
			settings.ModuleConfig, "config"},
		{settings.CheckoutVariable, "a checkout of AMD's AIter, whose operators are built from its sources", "none", "aiter"},
		{"AITER_LOG_LEVEL", "trace, debug, info, warn or error", "warn", "log-level"},
		{"AITER_REBUILD", "compile everything again", "off", ""},
		{"AITER_NO_COMPILE", "never run a compiler: use only prebuilt code", "off", ""},
		{"AITER_VERIFY", "the command run compares each call with the CPU build, or a float64 reference", "off", ""},
		{"AITER_TUNE", "calls use the launch parameters that tune has kept; the command tune ignores it", "off", ""},
		{"AITER_RELOAD", "hot reload in services; commands ignore it (see watch)", "off", ""},
		{"AITER_NUM_THREADS", "threads of the CPU kernels, 1 to 1024", "the processors of the process", ""},
		{"AITER_CPU_ISA", "instruction set of the CPU kernels: scalar, avx2, avx512, avx512_bf16 or neon", "the widest of the machine", ""},
		{"AITER_TRUST_JIT_DIR", "use a cache that other users can change", "off", ""},
		{"AITER_TOOLCHAIN_ROOT", "the folder that is / to a compiler in a container", "/", ""},
		{"GPU_ARCHS", "targets", native, "arch"},
		{"MAX_JOBS", "number of compilers at a time", "by processors, memory and cgroup limits", "jobs"},
		{"HIPCC", "the compiler for AMD GPUs", "hipcc of ROCM_PATH, ROCM_HOME, PATH or /opt/rocm", ""},
		{"ROCM_PATH", "a folder of ROCm", "none", ""},
		{"ROCM_HOME", "a folder of ROCm", "none", ""},
		{"NVCC", "the compiler for NVIDIA GPUs", "nvcc of CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda", ""},
		{"CUDA_HOME", "a folder of CUDA", "none", ""},
		{"CUDA_PATH", "a folder of CUDA", "none", ""},
		{"CK_DIR", "a folder of Composable Kernel, which configurations can name as ${CK_DIR}", "none", ""},
		{"CUDA_DRIVER_PATH", "the folder of the CUDA driver library", "the system's", ""},
		{"CXX", "the C++ compiler", "c++, g++ or clang++ of PATH", ""},
		{"CUOBJDUMP", "the disassembler of inspect for NVIDIA", "the one next to nvcc, or cuobjdump of PATH", ""},
		{"LLVM_OBJDUMP", "the disassembler of inspect for AMD", "the one next to hipcc, or llvm-objdump of PATH", ""},
		{"ROCPROFV3", "the profiler of profile --counters for AMD", "rocprofv3 of PATH, ROCM_PATH, ROCM_HOME or /opt/rocm", ""},
		{"NCU", "the profiler of profile --counters for NVIDIA", "ncu of PATH, CUDA_HOME, CUDA_PATH or /usr/local/cuda", ""},
		{"NO_COLOR", "no colors", "off", "color"},
	}
}

// variablesHelp lists the variables.
func variablesHelp() string {
	var b strings.Builder
	b.WriteString("Environment (a flag wins over a variable, a variable wins over the default; aiterctl env\nprints the values):\n")
	for _, v := range variables() {
		fmt.Fprintf(&b, "  %-20s  %s\n", v.name, v.usage)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// unknownVariable is a variable with the prefix AITER_ that nothing reads.
type unknownVariable struct {
	Name    string `json:"name"`
	Nearest string `json:"nearest"` // the variable that it may mean, "" if no name is similar
}

func (u unknownVariable) String() string {
	if u.Nearest == "" {
		return u.Name + " is ignored: no such variable"
	}
	return fmt.Sprintf("%s is ignored: no such variable; did you mean %s?", u.Name, u.Nearest)
}

// testVariables is the prefix of the variables of aiter's own tests.
const testVariables = "AITER_TEST_"

// unknownVariables returns the misspelled variables of an environment. configured are those that configurations name.
func unknownVariables(environ, configured []string) []unknownVariable {
	known := slices.Clone(configured)
	for _, v := range variables() {
		known = append(known, v.name)
	}
	var list []unknownVariable
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "AITER_") && !strings.HasPrefix(name, testVariables) && value != "" && !slices.Contains(known, name) {
			list = append(list, unknownVariable{name, spelling.NearestWord(name, known)})
		}
	}
	slices.SortFunc(list, func(a, b unknownVariable) int { return strings.Compare(a.Name, b.Name) })
	return list
}
