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
	Depfile string // receives the files that were read, as a Makefile rule; "": not asked for
	Flags   []string
	Target  target.Target
	Root    string // the command's working directory
}

// CompileArgs is the command that makes u.Object, to be run in u.Root with Environ. It is a function of its inputs
// alone. The object is the same whatever Root, Object and Depfile are: paths are relative or mapped, and what a
// compiler would otherwise number at random or by path follows ID.
//
// Depfile receives the files that were read, as a Makefile rule. For a HIP unit in one pass it has those of the host alone;
// CC_PRINT_HEADERS_FILE in the environment makes Clang list those of host and device.
//
// For CUDA the folder of Object takes nvcc's intermediate files, so it must be the unit's own, and nvcc's fatbinary
// does not accept a comma in its path. Objects that hold absolute paths whatever it does are those of NamesRoot.
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
	for _, dir := range u.Include {
		argv = append(argv, "-I"+dir)
	}
	argv = append(argv, u.Flags...)
	argv = append(argv, dependencies(u)...)
	return append(argv, "-c", u.Source, "-o", u.Object)
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

// anyArch is what a host pass is told: it has to name an architecture, and makes the same of each.
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
	if !tc.clang() { // Clang has nothing random to seed, and keeps static data of inline functions a library's own
		argv = append(argv, "-frandom-seed="+u.ID, "-fno-gnu-unique")
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
	if strings.Contains(tc.VersionLine, "gcc version ") { // as in hostCompile
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

// NamesRoot says whether the object will hold the absolute path of the source root, so that another root gives other
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
	if l.Depfile != "" { // GNU ld 2.35, LLD 12
		linker = append(linker, "--dependency-file="+l.Depfile)
	}
	for _, word := range linker {
		argv = append(argv, "-Xlinker", word)
	}
	argv = append(argv, l.Objects...)
	argv = append(argv, l.Flags...)
	return append(argv, "-o", l.Output)
}
