package opconfig_test

import (
	"strings"
	"testing"
)

// TestRefusedFlags checks flags that write other outputs, read unreported files, or replace parts of the toolchain.
func TestRefusedFlags(t *testing.T) {
	for flag, reason := range map[string]string{
		"-o": "outputs", "-ofile": "outputs", "--output-file=x": "outputs", "-odir": "outputs", "-c": "steps", "-E": "steps", "--ptx": "steps",
		"-dc": "steps",
		"-MF": "dependency", "-MD": "dependency", "-Wp,-MD,x": "dependency", "-Xcompiler=-MF,x": "dependency", "-Wa,--MD=x": "dependency",
		"@file": "contents", "-Wl,@file": "contents", "--options-file=x": "contents", "-Xptxas=@f": "contents",
		"--offload-arch=gfx942": "target comes", "-arch=sm_90": "target comes", "-gencode=x": "target comes", "-x": "language",
		"--language=c": "language",
		"-Ifoo":        "list the folder", "--include-directory=foo": "list the folder", "-Wa,-I,foo": "list the folder",
		"-iprefix": "search for headers", "-iwithprefix=x": "search for headers", "-ivfsoverlay": "search for headers",
		"--embed-dir=x": "search for headers", "-stdlib=libc++": "search for headers", "--include=x.h": "search for headers",
		"-Xcompiler=-isystem,/x": "directly", "-Wp,-include,x.h": "directly",
		"-frandom-seed=1": "identical outputs", "-frecord-gcc-switches": "from build to build", "-march=native": "machine that compiles",
		"--rocm-path=/x": "toolchain", "-fuse-ld=gold": "toolchain", "--specs=x": "toolchain", "--prefix=/x": "toolchain", "-Bdir/": "toolchain",
		"-Bx": "toolchain", "-gcc-toolchain=x": "toolchain",
		"--plugin=x": "loads code", "-fplugin=x.so": "loads code", "-Wl,-plugin,x": "loads code", "-Wl,--plugin=x": "loads code",
		"-mllvm=-load=x.so": "loads code", "-iplugindir=x": "loads code",
		"-fprofile-use": "does not report", "-fprofile-use=x": "does not report", "-fmodules": "does not report",
		"-fmodule-map-file=x": "does not report", "-include-pch": "does not report", "-fauto-profile": "does not report",
		"-save-temps=obj": "beside the object", "-fdump-tree-all": "beside the object", "-Wl,-Map=x": "beside the object",
		"-Wl,-Map,x": "beside the object", "-Wl,--reproduce=x": "beside the object",
		"-Wa,-a=F": "listing", "-Wa,-ahls=F": "listing", "-mllvm=-pass-remarks-output=x": "names a file",
		"-mllvm=-info-output-file=x": "names a file", "-Wl,-plugin-opt=-info-output-file=x": "names a file", "-Wl,-mllvm=-load=x": "loads code",
		"-Wl,-mllvm,-load=x": "loads code",
		"-fopt-info-all=F":   "not known", "--for-linker=@f": "not known", "-fsanitize-ignorelist=x": "not known",
		"-fdiagnostics-format=sarif-file": "not known", "-Wl,--Ma=x": "not known",
		"-Wl,--depend=x": "not known", "-Wl,--out-impl=x": "not known", "-Wl,--format=binary": "not known", "-Xptxas=--compile-only": "not known",
		"--verbos":     "not known",
		"-DX=`cat /x`": "shell", "-Xcompiler=-DX=`cat`": "shell", "-Xcompiler=-DX=1;cat": "shell", "-fno-common -I/x": "shell",
		"-fno-common;cat": "shell", "-Xptxas=-O3|cat": "shell", "-Xlinker=-z now --plugin=x": "loads code",
		"-Xcompiler=-fPIC -I/x": "list the folder", "--compiler-options=-O2 -fplugin=x.so": "loads code",
		"-gen-cdb-fragment-path": "beside the object", "-module-dependency-dir": "does not report", "-fcompare-debug": "beside the object",
		"-mllvm=-exec-on-ir-change=x": "loads code", "-mllvm=--sample-profile-inline-replay=x": "names a file",
		"-mllvm=-lowertypetests-write-summary=x": "names a file", "-mllvm=--dfsan-abilist=x": "names a file",
		"-mllvm=-print-changed=dot-cfg": "names a file", "-mllvm=-chr-function-list=x": "names a file",
		"-mllvm=-cs-profile-path=x": "names a file", "-mllvm=--regalloc-evict-interactive-channel-base=x": "names a file",
		"-mllvm=--amdgpu-module-splitting-print-module-dotcfg=x": "names a file", "-Wl,-plugin-opt=-fresolution=x": "names a file",
		"evil.cpp": "does not start", "a b": "does not start", "-Xcompiler=x.o": "does not start", "-Xptxas=x/y.ptx": "does not start",
	} {
		for _, key := range []string{"flags", "link_flags"} {
			got := mistakesOf(t, in(key+".common = ['"+flag+"']"), nil)
			position := map[string]string{"flags": "2:17", "link_flags": "2:22"}[key]
			if len(got) != 1 || !strings.Contains(got[0], "config/main.toml:"+position+": flag \""+flag+"\" is not allowed") ||
				!strings.Contains(got[0], reason) {
				t.Errorf("%s: %q, want %q", flag, got, reason)
			}
		}
	}
	for _, list := range []string{
		"'-Xclang', '-MF'", "'-Xcompiler', '-O2,-march=native'", "'-O3', '-Xlinker', '-o'", "'-Xclang'", "'-D'", "'-DX', 'Y'", "'-isystem', '@x'",
		"'-D', '@x'", "'-Xlinker', '-plugin'",
		"'-Xclang', '-load', '-Xclang', '-O2'", "'-Xclang', '-mlink-builtin-bitcode'", "'-mllvm', '-load=x.so'", "'-Xarch_host', '-B/x'",
		"'-Xassembler', '-a=F'", "'-Xclang', '-mllvm', '-Xclang', '-load=x.so'",
		"'-DX=$$(cat /x)'", "'-Xcompiler', '-DX=$$(cat)'", "'-t', 'x.cpp'", "'--threads', '/x/a.o'", "'-isystem', '$$(cat /x)'",
		"'-Xcompiler', '-fPIC -include /x'", "'-Wl,--retain-symbols-file=/x'", "'-Xlinker', '--Map=x'", "'-Xpreprocessor', '-MD'",
		"'-Xclang', '-target-feature', '-Xclang', '@f'",
	} {
		for _, key := range []string{"flags", "link_flags"} {
			if got := mistakesOf(t, in(key+".common = ["+list+"]"), nil); len(got) != 1 {
				t.Errorf("%s = %s: %q", key, list, got)
			}
		}
	}
}

// TestNearestFlag checks that the message for a misspelled flag suggests the right one.
func TestNearestFlag(t *testing.T) {
	for flag, want := range map[string]string{
		"-fvisibilty=hidden": "-fvisibility=hidden", "--use_fastmath": "--use_fast_math", "-Wl,--as-neded": "--as-needed", "-pthred": "-pthread",
		"--offload-compres": "--offload-compress",
	} {
		if got := mistakesOf(t, in("flags.common = ['"+flag+"']"), nil); len(got) != 1 ||
			!strings.HasSuffix(got[0], "; did you mean \""+want+"\"?") {
			t.Errorf("%s: %q, want %s", flag, got, want)
		}
	}
}

// TestAllowedFlags checks that flags of kernel libraries are accepted.
func TestAllowedFlags(t *testing.T) {
	for name, list := range map[string]string{
		"plain": "'-O3', '-std=c++17', '-Xarch_host', '-DX=a b', '-Wall', '-ffp-contract=fast', '-march=x86-64-v3', '-DNAME=\"x\"', " +
			"'-DA=b=c', '-Wno-unused', '-Wl,-z,now', '-pedantic-errors', '-Wformat=2', '-Werror=return-type', '-g', '-ggdb3', '-gdwarf-5', " +
			"'-gz=zlib'",
		"search": "'-isystem', '/opt/x', '-include', 'x.h', '-D', 'X', '-iquote', 'q', '-idirafter', '/y', '-isystem/a=b', '-imacros', 'm.h'",
		"AITER": "'-DLEGACY_HIPBLAS_DIRECT=ON', '-D__HIP_PLATFORM_AMD__=1', '-U__HIP_NO_HALF_CONVERSIONS__', '-mllvm', " +
			"'--amdgpu-kernarg-preload-count=16', '-mllvm', '-enable-post-misched=0', '-mllvm', '-amdgpu-early-inline-all=true', '-mllvm', " +
			"'-amdgpu-function-calls=false', '-mllvm', '-amdgpu-coerce-illegal-types=1', '-mllvm', '--lsr-drop-solution=1', '-mllvm', " +
			"'-greedy-reverse-local-assignment=1', '-mllvm', '--slp-threshold=-32', '-fno-offload-uniform-block', " +
			"'-fgpu-flush-denormals-to-zero', '-mcmodel=large', '-fno-unique-section-names', '-ffunction-sections', '-fdata-sections', " +
			"'-Wno-unused-result', '-Wno-vla-cxx-extension', '-Wno-missing-template-arg-list-after-template-kw', '--offload-compress', " +
			"'-parallel-jobs=4', '-w'",
		"CK": "'-fbracket-depth=1024', '-mllvm=-amdgpu-mfma-vgpr-form', '-Xclang', '-mllvm', '-Xclang', '-enable-post-misched=0', " +
			"'-fhip-new-launch-api', '-Wno-#pragma-messages', '-ftemplate-backtrace-limit=0', '-fPIE', '-Wno-gnu-line-marker', '-Weverything'",
		"HIP": "'-fgpu-rdc', '-munsafe-fp-atomics', '-Rpass-analysis=kernel-resource-usage', '-fno-gpu-rdc', '-ffast-math', " +
			"'-fdenormal-fp-math=preserve-sign', '-Xarch_device', '-O3', '-Xarch_host', '-mavx2', '-Xarch_gfx942', '-DX', " +
			"'-fgpu-default-stream=per-thread', '--gpu-max-threads-per-block=512', '-mno-wavefrontsize64', '-mcumode', '-Xclang', " +
			"'-target-feature', '-Xclang', '+xnack', '-fno-hip-fp32-correctly-rounded-divide-sqrt', '-mamdgpu-ieee', '-Xclang', " +
			"'-fallow-half-arguments-and-returns', '-mllvm', '-enable-load-pre=0', '-nogpuinc', '-fno-slp-vectorize', '-mllvm', " +
			"'-unroll-threshold=1000'",
		"vLLM": "'-Xptxas', '-v', '-Xptxas=-O3', '--expt-relaxed-constexpr', '--expt-extended-lambda', '-Xptxas', '-v,-dlcm=ca', " +
			"'--ptxas-options=-v,--warn-on-spills', '-Xfatbin', '-compress-all', '-lineinfo', '--threads=4', '--threads', '4', '-t', '8', " +
			"'-t4', '-Xcompiler', '-fPIC -O3', '-mllvm', '-disable-sched-critical-path', '-static-global-template-stub=false', '-Xcompiler', " +
			"'-fPIC,-Wno-psabi', '-Xcudafe', '--diag_suppress=177', '-diag-suppress', '177', '--compress-mode=size', '-rdc=true', " +
			"'-Wno-deprecated-gpu-targets', '-U__CUDA_NO_HALF_OPERATORS__', '-DCUTE_USE_PACKED_TUPLE=1'",
		"FlashInfer": "'-use_fast_math', '-DFLASHINFER_ENABLE_F16', '-Xptxas=--register-usage-level=10', '--maxrregcount=128', " +
			"'-maxrregcount', '64', '--fmad=false', '-Xcompiler=-fopenmp', '--default-stream=per-thread', '--split-compile=0', " +
			"'--resource-usage', '-G', '-Xcompiler=-Wall,-Wextra,-fvisibility=hidden', '--allow-unsupported-compiler', '--extended-lambda', " +
			"'-Xcudafe=--display_error_number'",
		"llama.cpp": "'-fopenmp', '-march=armv8.2-a+fp16+dotprod', '-mfma', '-mavx2', '-mf16c', '-msse4.2', '-mcpu=neoverse-n1', " +
			"'-mtune=generic', '-ffast-math', '-fno-finite-math-only', '-Wdouble-promotion', '-funroll-loops', '-extended-lambda', " +
			"'-compress-mode=size', '-D_GNU_SOURCE', '-fsanitize=thread', '--param=max-inline-insns=100', '--param', 'x=1', " +
			"'-Wp,-D_FORTIFY_SOURCE=2', '-Wp,-U_FORTIFY_SOURCE', '-flto=auto', '-Wa,--noexecstack', '-Xassembler', '-mrelax-relocations=no', " +
			"'-fstack-protector-strong', '-fcf-protection=none'",
	} {
		if got := mistakesOf(t, in("flags.common = ["+list+"]"), nil); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, list := range []string{
		"'-lm', '-L/opt/x', '-Wl,-z,now', '-Wl,-x', '-Wl,-Bsymbolic', '-Xlinker', '-E', '-Wl,--as-needed', '-pthread', '-static-libgcc', " +
			"'-Wl,--version-script=x.map', '-Wl,--version-script,x.map', '-T', 'x.ld'",
		"'-Wl,-rpath,$$ORIGIN', '-Wl,-rpath=/x', '-Wl,--exclude-libs,ALL', '-Wl,-soname,libx.so', '-Wl,--whole-archive', '-lx', " +
			"'-Wl,--no-whole-archive', '-Wl,-u,sym', '-Wl,--defsym,a=b', '-Wl,--wrap=malloc', '-l:libx.a'",
		"'-Xlinker', '-z', '-Xlinker', 'nodelete', '-Xlinker=--as-needed', '-Wl,--hash-style=gnu', '-Wl,--gc-sections', '-Wl,--icf=all', " +
			"'-Wl,-O1', '-Wl,--build-id=none', '-Wl,-Bstatic', '-lz', '-Wl,-Bdynamic', '-Wl,--no-undefined', '-rdynamic', '-s'",
		"'-fopenmp', '-Wl,-mllvm,-amdgpu-early-inline-all=true', '-Xoffload-linker', '-mllvm=-amdgpu-function-calls=false', " +
			"'-Wl,/x/libfoo.a', '-Wl,-plugin-opt=-amdgpu-function-calls=false', '-Wl,--dynamic-list=x', '-lcublas', '-cudart=static'",
	} {
		if got := mistakesOf(t, in("link_flags.common = ["+list+"]"), nil); got != nil {
			t.Errorf("%s: %q", list, got)
		}
	}
}
