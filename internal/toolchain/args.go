package toolchain

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// Unit is one source file to compile for one target.
type Unit struct {
	Source  string // relative to Root
	Object  string // absolute; see CompileArgs for CUDA
	Depfile string // absolute
	Include []string
	Flags   []string
	Target  target.Target
	Pass    Pass
	ID      string // unique among the units of a link and derived from their inputs
	Root    string // source root: the command's working directory
	// Headers is a folder outside of Root whose absolute path is among Include; "" if there is none. The object
	// names it HeadersName.
	Headers, HeadersName string
	Tables               string // a folder of generated headers, absolute and among Include; "" if there is none
}

// prefixMap returns the options that make the object independent of the folders of the sources.
func (u Unit) prefixMap() []string {
	maps := []string{"-ffile-prefix-map=" + u.Root + "=."}
	if u.Headers != "" {
		maps = append(maps, "-ffile-prefix-map="+u.Headers+"="+u.HeadersName)
	}
	if u.Tables != "" {
		maps = append(maps, "-ffile-prefix-map="+u.Tables+"=tables")
	}
	return maps
}

// Link is one shared library to make of objects.
type Link struct {
	Objects []string
	Output  string
	Flags   []string
	Target  target.Target
	Root    string // the command's working directory
}

// CompileArgs returns the command that makes u.Object. It runs in u.Root with Environ. It is a function of its inputs
// alone. The object does not depend on Root, Object and Depfile: paths are relative or mapped, and ID replaces
// numbers that a compiler would choose at random or by path.
//
// Depfile receives the files that were read, as a Makefile rule. For a HIP unit in one pass these are the host's only;
// CC_PRINT_HEADERS_FILE in the environment makes Clang list the files of host and device.
//
// For CUDA the folder of Object takes nvcc's intermediate files, so it must be the unit's own, and nvcc's fatbinary
// does not accept a comma in its path. NamesRoot reports the objects that hold absolute paths in spite of it.
func (tc *Toolchain) CompileArgs(u Unit) []string {
	argv := []string{tc.Compiler}
	switch tc.Vendor {
	case target.HIP:
		argv = append(argv, hipCompile(u)...)
	case target.CUDA:
		argv = append(argv, tc.nvccCompile(u)...)
	default:
		argv = append(argv, tc.hostCompile(u)...)
	}
	argv = append(argv, tc.constantTimes()...)
	for _, dir := range u.Include {
		argv = append(argv, "-I"+tc.includeFolder(dir))
	}
	argv = append(argv, u.Flags...)
	argv = append(argv, tc.dependencies(u)...)
	argv = append(argv, tc.assemblerDependencies(u)...)
	kind := "-c"
	if tc.Vendor == target.CUDA && u.Pass.MakesDeviceCode() {
		kind = "-fatbin"
	}
	return append(argv, kind, operand(u.Source), "-o", u.Object)
}

// operand returns a relative path in a form that compilers take for neither an option nor a file of options.
func operand(p string) string {
	if strings.HasPrefix(p, "-") || strings.HasPrefix(p, "@") {
		return "./" + p
	}
	return p
}

// includeFolder returns a folder in a form for -I, where a leading "=" means the system's root and "-" divides the list.
// nvcc takes a comma for a separator.
func (tc *Toolchain) includeFolder(dir string) string {
	if strings.HasPrefix(dir, "=") || strings.HasPrefix(dir, "$SYSROOT") || dir == "-" {
		dir = "./" + dir
	}
	if tc.Vendor == target.CUDA && strings.Contains(dir, ",") {
		return `"` + dir + `"`
	}
	return dir
}

// gcc reports whether GCC compiles: as the compiler itself, or as nvcc's host compiler.
func (tc *Toolchain) gcc() bool {
	if tc.Vendor == target.CUDA {
		return strings.Contains(tc.VersionLine, "gcc version ")
	}
	return !tc.clang()
}

// constantTimes defines the macros of the time as in 1970. Compilers take __DATE__ and __TIME__ from SOURCE_DATE_EPOCH,
// Clang from version 16 on. __TIMESTAMP__ is the modification time of the source file, which is not part of its content;
// Clang takes it from SOURCE_DATE_EPOCH, GCC does not.
func (tc *Toolchain) constantTimes() []string {
	old := tc.clangMajor() > 0 && tc.clangMajor() < 16
	if !tc.gcc() && !old {
		return nil
	}
	argv := []string{"-Wno-builtin-macro-redefined", `-D__TIMESTAMP__="Thu Jan  1 00:00:00 1970"`}
	if old {
		argv = append(argv, `-D__DATE__="Jan  1 1970"`, `-D__TIME__="00:00:00"`)
	}
	return argv
}

// AssemblerDepfile returns the name of the list of files that GNU as read for .incbin and .include. Clang's assembler
// writes no such list.
func AssemblerDepfile(depfile string) string { return depfile + ".as" }

func (tc *Toolchain) assemblerDependencies(u Unit) []string {
	if !tc.gcc() || u.Pass.MakesDeviceCode() { // a device pass does not run GNU as
		return nil
	}
	words := []string{"-Xassembler", "--MD", "-Xassembler", AssemblerDepfile(u.Depfile)}
	if tc.Vendor != target.CUDA {
		return words
	}
	var argv []string
	for _, word := range words {
		argv = append(argv, "-Xcompiler", nvccWord(word))
	}
	return argv
}

// dependencies returns the flags for the depfile. HIP's driver ignores -MD in a device pass; the compiler that it runs
// does not. nvcc would preprocess the source again, for the host.
func (tc *Toolchain) dependencies(u Unit) []string {
	plain := []string{"-MD", "-MF", u.Depfile}
	if !u.Pass.MakesDeviceCode() {
		return plain
	}
	var argv []string
	if tc.Vendor == target.CUDA {
		for _, word := range plain {
			argv = append(argv, "-Xcompiler", nvccWord(word))
		}
		return argv
	}
	for _, word := range []string{"-dependency-file", u.Depfile, "-sys-header-deps", "-MT", "unit"} {
		argv = append(argv, "-Xclang", word)
	}
	return argv
}

// anyArch is the architecture in the command of a host pass. The command needs one; its output does not depend on it.
const anyArch = "gfx90a"

func hipCompile(u Unit) []string {
	common := append([]string{"-cuid=" + u.ID, "-fPIC"}, u.prefixMap()...)
	switch u.Pass {
	case Host:
		return append([]string{"--offload-arch=" + anyArch, "--cuda-host-only", "-nogpulib"}, common...)
	case Device:
		return append([]string{"--offload-arch=" + u.Target.String(), "--cuda-device-only", "--no-gpu-bundle-output"}, common...)
	}
	return append([]string{"--offload-arch=" + u.Target.String()}, common...)
}

func (tc *Toolchain) hostCompile(u Unit) []string {
	argv := append([]string{"-fPIC"}, u.prefixMap()...)
	if tc.gcc() { // Clang needs no seed, and emits no GNU-unique symbols
		// GCC uses a precompiled header only for the first included file. An empty first file prevents that.
		argv = append(argv, "-frandom-seed="+u.ID, "-fno-gnu-unique", "-include", "/dev/null")
	}
	return argv
}

// nvccCompile makes nvcc deterministic. The module ID, part of every internal symbol's name, is a hash of the path that
// cudafe++ gets. The names of intermediate files become part of the object; they are random unless the files are kept.
// In a host pass nvcc runs its C++ compiler alone.
func (tc *Toolchain) nvccCompile(u Unit) []string {
	if u.Pass == Host {
		return tc.nvccHostPass(u)
	}
	beside := filepath.Dir(u.Object)
	argv := []string{
		"-x", "cu", gencode(u.Target),
		"-forward-unknown-to-host-compiler",
		"-fPIC", "-frandom-seed=" + u.ID,
		"-Xcudafe", "--orig_src_path_name=" + u.ID,
	}
	for _, option := range append([]string{"-ffile-prefix-map=" + beside + "=."}, u.prefixMap()...) {
		argv = append(argv, "-Xcompiler", nvccWord(option))
	}
	argv = append(argv, "--keep", "--keep-dir", beside)
	if u.Pass.MakesDeviceCode() {
		argv = append(argv, "--no-compress") // internal/codeobject reads the code
	}
	if k, n := u.Pass.Shard(); n > 1 {
		argv = append(argv, fmt.Sprintf("-DAITER_SHARD=%d", k))
	}
	if tc.gcc() { // as in hostCompile
		argv = append(argv, "-fno-gnu-unique")
	}
	return argv
}

// deviceCodePrefix and a unit's ID are the symbol of its device code, which package codeobject defines.
const deviceCodePrefix = "aiter_device_code_"

// nvccHostPass is nvccCompile for a host pass. nvcc defines a macro with its oldest target, which nothing reads.
func (tc *Toolchain) nvccHostPass(u Unit) []string {
	argv := []string{"-x", "c++", "-forward-unknown-to-host-compiler", "-fPIC", "-frandom-seed=" + u.ID,
		"-DAITER_DEVICE_CODE=" + deviceCodePrefix + u.ID}
	for _, option := range u.prefixMap() {
		argv = append(argv, "-Xcompiler", nvccWord(option))
	}
	if tc.gcc() { // as in hostCompile
		argv = append(argv, "-fno-gnu-unique")
	}
	return argv
}

// CodeTarget returns the target that code for t is labelled with: sm_90a for sm_90, otherwise t.
func CodeTarget(t target.Target) string {
	if t.Arch() == "sm_90" {
		return "sm_90a"
	}
	return t.String()
}

// gencode returns the option that makes nvcc generate the target's code. Code for sm_90 is sm_90a, which every GPU of compute
// capability 9.0 runs: it may use the matrix instructions of four warps.
func gencode(t target.Target) string {
	arch := CodeTarget(t)
	return "-gencode=arch=compute_" + strings.TrimPrefix(arch, "sm_") + ",code=" + arch
}

// nvccWord protects a word from nvcc, which takes commas for separators, and from the shell that nvcc uses.
func nvccWord(s string) string {
	return `"` + strings.NewReplacer(",", `\,`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(s) + `"`
}

// NamesRoot reports whether the object will contain the absolute path of the source root, and so depend on it. With
// -lineinfo or -G nvcc writes the sources' paths into device code, and no option prevents that.
func (tc *Toolchain) NamesRoot(flags []string) bool {
	return tc.Vendor == target.CUDA && slices.ContainsFunc(flags, func(f string) bool {
		return slices.Contains([]string{"-lineinfo", "--generate-line-info", "-G", "--device-debug"}, f)
	})
}

// LinkArgs returns the command that makes the shared library l.Output. Symbols that no object defines, such as those of
// TVM FFI, stay undefined. The library does not depend on unused libraries, and has no soname and no run path.
func (tc *Toolchain) LinkArgs(l Link) []string {
	argv := []string{tc.Compiler, "-shared"}
	var linker []string
	switch tc.Vendor {
	case target.HIP:
		argv = append(argv, "--offload-arch="+l.Target.String())
	case target.CUDA:
		argv = append(argv, "-cudart", "static", "-nodlink", "-forward-unknown-to-host-compiler",
			gencode(l.Target))
		linker = []string{"--exclude-libs=ALL"} // each library has its own static CUDA runtime
	}
	linker = append(linker, "--as-needed", "--build-id=sha1")
	for _, word := range linker {
		argv = append(argv, "-Xlinker", word)
	}
	argv = append(argv, l.Objects...)
	argv = append(argv, l.Flags...)
	return append(argv, "-o", l.Output)
}
