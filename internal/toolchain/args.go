package toolchain

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// Unit is one source file to compile for one target.
type Unit struct {
	Source  string // relative to Root
	Object  string // absolute; for CUDA see CompileArgs
	Depfile string // absolute
	Include []string
	Flags   []string
	Target  target.Target
	Pass    Pass
	ID      string // unique among the units of a link and derived from their inputs
	Root    string // source root: the command's working directory
}

// Link is one shared library to make of objects.
type Link struct {
	Objects []string
	Output  string
	Flags   []string
	Target  target.Target
	Root    string // the command's working directory
}

// CompileArgs is the command that makes u.Object, to be run in u.Root with Environ. It is a function of its inputs
// alone. The object does not depend on Root, Object and Depfile: paths are relative or mapped, and ID replaces
// what a compiler would number at random or by path.
//
// Depfile receives the files that were read, as a Makefile rule. For a HIP unit in one pass it has those of the host alone;
// CC_PRINT_HEADERS_FILE in the environment makes Clang list those of host and device.
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
	argv = append(argv, dependencies(u)...)
	argv = append(argv, tc.assemblerDependencies(u)...)
	return append(argv, "-c", operand(u.Source), "-o", u.Object)
}

// operand spells a relative path so that it is no option and no file of options.
func operand(p string) string {
	if strings.HasPrefix(p, "-") || strings.HasPrefix(p, "@") {
		return "./" + p
	}
	return p
}

// includeFolder spells a folder for -I, after which "=" stands for the system's root, "-" alone divides the list, and
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

// gcc reports whether GCC compiles: as the compiler itself, or for the host behind nvcc.
func (tc *Toolchain) gcc() bool {
	if tc.Vendor == target.CUDA {
		return strings.Contains(tc.VersionLine, "gcc version ")
	}
	return !tc.clang()
}

// constantTimes defines macros of the time as they are in 1970. Compilers take __DATE__ and __TIME__ from SOURCE_DATE_EPOCH,
// Clang from version 16 on, and Clang takes __TIMESTAMP__ from there too, the time of a source file, which is not part of its
// content. GCC does not.
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

// AssemblerDepfile is the file beside a unit's Depfile that receives the files which GNU as read, .incbin's and
// .include's. Clang's assembler writes no such list.
func AssemblerDepfile(depfile string) string { return depfile + ".as" }

func (tc *Toolchain) assemblerDependencies(u Unit) []string {
	if !tc.gcc() {
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

// dependencies asks for the depfile. A device pass by itself knows no -MD, but the compiler behind the driver does.
func dependencies(u Unit) []string {
	if u.Pass != Device {
		return []string{"-MD", "-MF", u.Depfile}
	}
	var argv []string
	for _, word := range []string{"-dependency-file", u.Depfile, "-sys-header-deps", "-MT", "unit"} {
		argv = append(argv, "-Xclang", word)
	}
	return argv
}

// anyArch is the architecture of host passes. They need one, and their output does not depend on it.
const anyArch = "gfx90a"

func hipCompile(u Unit) []string {
	common := []string{"-cuid=" + u.ID, "-fPIC", "-ffile-prefix-map=" + u.Root + "=."}
	switch u.Pass {
	case Host:
		return append([]string{"--offload-arch=" + anyArch, "--cuda-host-only", "-nogpulib"}, common...)
	case Device:
		return append([]string{"--offload-arch=" + u.Target.String(), "--cuda-device-only", "--no-gpu-bundle-output"}, common...)
	}
	return append([]string{"--offload-arch=" + u.Target.String()}, common...)
}

func (tc *Toolchain) hostCompile(u Unit) []string {
	argv := []string{"-fPIC", "-ffile-prefix-map=" + u.Root + "=."}
	if tc.gcc() { // Clang has nothing random to seed, and keeps static data of inline functions a library's own
		// GCC uses a precompiled header for the first file that is included alone, so an empty one comes first.
		argv = append(argv, "-frandom-seed="+u.ID, "-fno-gnu-unique", "-include", "/dev/null")
	}
	return argv
}

// nvccCompile makes nvcc deterministic: the module ID, part of every internal symbol's name, is a hash of the path that
// cudafe++ is told; intermediate files, whose names end up in the object, get random names unless they are kept.
func (tc *Toolchain) nvccCompile(u Unit) []string {
	beside := filepath.Dir(u.Object)
	argv := []string{
		"-x", "cu", "-gencode=arch=compute_" + smNumber(u.Target) + ",code=" + u.Target.Arch(),
		"-forward-unknown-to-host-compiler",
		"-fPIC", "-frandom-seed=" + u.ID,
		"-Xcudafe", "--orig_src_path_name=" + u.ID,
		"-Xcompiler", nvccWord("-ffile-prefix-map=" + beside + "=."), "-Xcompiler", nvccWord("-ffile-prefix-map=" + u.Root + "=."),
		"--keep", "--keep-dir", beside,
	}
	if tc.gcc() { // as in hostCompile
		argv = append(argv, "-fno-gnu-unique")
	}
	return argv
}

// smNumber is the virtual architecture's number: 90 for sm_90, 90a for sm_90a.
func smNumber(t target.Target) string { return strings.TrimPrefix(t.Arch(), "sm_") }

// nvccWord protects a word from nvcc, which takes commas for separators, and from the shell that nvcc uses.
func nvccWord(s string) string {
	return `"` + strings.NewReplacer(",", `\,`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(s) + `"`
}

// NamesRoot reports whether the object will hold the absolute path of the source root, so that another root gives other
// bytes: with -lineinfo or -G nvcc writes the sources' paths into device code, and nothing makes it leave them out.
func (tc *Toolchain) NamesRoot(flags []string) bool {
	return tc.Vendor == target.CUDA && slices.ContainsFunc(flags, func(f string) bool {
		return slices.Contains([]string{"-lineinfo", "--generate-line-info", "-G", "--device-debug"}, f)
	})
}

// LinkArgs is the command that makes the shared library l.Output. Symbols that no object defines, such as those of
// TVM FFI, stay undefined; libraries that nothing is used of are not depended on; there is no soname and no run path.
func (tc *Toolchain) LinkArgs(l Link) []string {
	argv := []string{tc.Compiler, "-shared"}
	var linker []string
	switch tc.Vendor {
	case target.HIP:
		argv = append(argv, "--offload-arch="+l.Target.String())
	case target.CUDA:
		argv = append(argv, "-cudart", "static", "-nodlink", "-forward-unknown-to-host-compiler",
			"-gencode=arch=compute_"+smNumber(l.Target)+",code="+l.Target.Arch())
		linker = []string{"--exclude-libs=ALL"} // the CUDA runtime linked in is this library's own
	}
	linker = append(linker, "--as-needed", "--build-id=sha1")
	for _, word := range linker {
		argv = append(argv, "-Xlinker", word)
	}
	argv = append(argv, l.Objects...)
	argv = append(argv, l.Flags...)
	return append(argv, "-o", l.Output)
}
