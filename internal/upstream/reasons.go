package upstream

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Reason is a reason why a module cannot be built without changes.
type Reason struct {
	What  string // "torch", "Composable Kernel", "assembly code objects", "generator", ...
	Where string // the evidence: "csrc/include/moe_ck.h:3 includes <torch/all.h>"
}

func (r Reason) String() string { return r.What + ": " + r.Where }

// The kinds of reasons, in the order of a module's reasons.
const (
	needsTorch     = "torch"
	needsCK        = "Composable Kernel"
	needsAssembly  = "assembly code objects"
	needsGenerator = "generator"
	missingSource  = "missing source"
	missingHeader  = "missing header"
)

// libraries returns the library of an included header, by the first folder of its name or by the whole name. "" stands for HIP and for
// header libraries, which are not a reason.
func libraries() map[string]string {
	return map[string]string{
		"torch": needsTorch, "ATen": needsTorch, "c10": needsTorch, "caffe2": needsTorch, "Python.h": needsTorch,
		"ck": needsCK, "ck_tile": needsCK, "fmha_fwd.hpp": needsCK, "fmha_bwd.hpp": needsCK,
		"hip": "", "pybind11": "", "sys": "", "hipcub": "", "rocprim": "", // the last two are in headerLibraries
		"hiprand": "hipRAND", "rocrand": "hipRAND", "hipblaslt": "hipBLASLt", "rocblas": "rocBLAS", "hipblas": "hipBLAS",
		"rocsolver": "rocSOLVER", "fmt": "fmt", "openssl": "OpenSSL", "kittens.cuh": "HipKittens",
	}
}

// headerLibraries returns the libraries that consist of headers alone, by the first folder of an included name. ROCm contains them;
// Debian has a package for each.
func headerLibraries() map[string]string {
	return map[string]string{"hipcub": "hipCUB", "rocprim": "rocPRIM"}
}

// Standins are headers of this project that AIter's sources include in place of a library's headers, such as Composable Kernel's.
type Standins struct {
	Files   fs.FS
	Include []string // relative to Files
	Flags   []string // of the compiler; their macros select branches of the sources
}

// reader follows the includes of a module.
type reader struct {
	c        *Checkout
	standins Standins
	known    macros
	include  []string
	seen     map[string]bool
	reasons  []Reason
	needs    []string // header libraries
}

// Reasons returns the reasons why a module cannot be built without Python, PyTorch and Composable Kernel, none if it can be built.
func (c *Checkout) Reasons(m *Module, standins Standins) []Reason {
	reasons, _ := c.reasons(m, standins)
	return reasons
}

// reasons returns the reasons, and the header libraries that the sources include.
func (c *Checkout) reasons(m *Module, standins Standins) ([]Reason, []string) {
	flags := slices.Clone(standins.Flags)
	for _, f := range m.Flags {
		if !f.Unknown {
			flags = append(flags, strings.Fields(f.Text)...)
		}
	}
	r := &reader{c: c, standins: standins, known: macrosOf(flags), seen: map[string]bool{}}
	r.include = append([]string{"csrc/include", "csrc"}, m.Include...)
	for _, name := range m.Missing {
		if isCK(name) {
			r.add(needsCK, "the source "+name)
		} else {
			r.add(missingSource, name)
		}
	}
	for _, name := range m.Libraries {
		if name == "ComposableKernel" {
			name = needsCK
		}
		r.add(name, "third_party in "+configFile)
	}
	for _, command := range m.Generators {
		script, _, _ := strings.Cut(command, " ")
		switch {
		case isCK(script):
			r.add(needsCK, "the generator "+script)
		case script == "hsa/codegen.py":
			r.add(needsAssembly, "the generator "+script)
		default:
			r.add(needsGenerator, script)
		}
	}
	for _, file := range m.Sources {
		r.follow(file)
		if line := r.uses(file, assemblyClass); line > 0 {
			r.add(needsAssembly, fmt.Sprintf("%s:%d uses %s", file, line, assemblyClass))
		}
	}
	slices.Sort(r.needs)
	return r.sorted(m), r.needs
}

// assemblyClass is the C++ class with which AIter loads an assembly code object.
const assemblyClass = "AiterAsmKernel"

// uses returns the first line of a file that has the identifier, 0 if none has it.
func (r *reader) uses(file, word string) int {
	text, err := r.c.text(file)
	if err != nil || !strings.Contains(text, word) {
		return 0
	}
	for _, t := range scanAll(newCScanner(text)) {
		if t.kind == nameToken && t.text == word {
			return t.line
		}
	}
	return 0
}

// sorted returns the reasons in the order of their kinds. It leaves out missing headers if Composable Kernel or a generator may supply
// them.
func (r *reader) sorted(m *Module) []Reason {
	order := []string{needsTorch, needsCK, needsAssembly, needsGenerator, missingSource, missingHeader}
	rank := func(x Reason) int {
		if i := slices.Index(order, x.What); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(r.reasons, func(a, b Reason) int { return rank(a) - rank(b) })
	supplied := slices.ContainsFunc(m.Include, isCK) ||
		slices.ContainsFunc(r.reasons, func(x Reason) bool { return x.What == needsAssembly || x.What == needsGenerator })
	return slices.DeleteFunc(r.reasons, func(x Reason) bool { return x.What == missingHeader && supplied })
}

func isCK(name string) bool { return name == ckFolder || strings.HasPrefix(name, ckFolder+"/") }

// add adds a reason: the first one of each kind, and every missing file.
func (r *reader) add(what, where string) {
	if what == missingSource || what == missingHeader || !slices.ContainsFunc(r.reasons, func(x Reason) bool { return x.What == what }) {
		if x := (Reason{what, where}); !slices.Contains(r.reasons, x) {
			r.reasons = append(r.reasons, x)
		}
	}
}

// follow reads a file of the checkout and what it includes.
func (r *reader) follow(file string) {
	stack := []string{file}
	for len(stack) > 0 && len(r.seen) < maxFiles {
		file := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if r.seen[file] {
			continue
		}
		r.seen[file] = true
		text, err := r.text(file)
		if err != nil {
			r.add(missingHeader, fmt.Sprintf("%s: %v", file, err))
			continue
		}
		var next []string
		for _, inc := range includes(text, r.known) {
			if found := r.find(inc, file); found != "" {
				next = append(next, found)
			}
		}
		slices.Reverse(next)
		stack = append(stack, next...)
	}
}

// standinMark is the first byte of the names of stand-ins.
const standinMark = "@"

// text returns the content of a file of the checkout or of a stand-in.
func (r *reader) text(file string) (string, error) {
	if name, ok := strings.CutPrefix(file, standinMark); ok {
		text, err := fs.ReadFile(r.standins.Files, name)
		return string(text), err
	}
	return r.c.text(file)
}

// find returns the file that the include inc in file from leads to: a file of the checkout, or a stand-in with standinMark. It returns
// "" for other headers, and adds a reason for those that neither HIP, the standard library nor a header library has.
func (r *reader) find(inc include, from string) string {
	var candidates []string
	if !inc.angle && !strings.HasPrefix(from, standinMark) {
		candidates = append(candidates, path.Join(path.Dir(from), inc.name))
	}
	for _, dir := range r.standins.Include {
		if name := path.Join(dir, inc.name); fs.ValidPath(name) {
			if _, err := fs.Stat(r.standins.Files, name); err == nil {
				return standinMark + name
			}
		}
	}
	for _, dir := range r.include {
		candidates = append(candidates, path.Join(dir, inc.name))
	}
	for _, name := range candidates {
		if fs.ValidPath(name) && r.c.has(name) {
			return name
		}
	}
	first, rest, nested := strings.Cut(inc.name, "/")
	library, isLibrary := libraries()[first]
	if need := headerLibraries()[first]; need != "" && !slices.Contains(r.needs, need) && !inc.unclear {
		r.needs = append(r.needs, need)
	}
	quoted := `"` + inc.name + `"`
	if inc.angle {
		quoted = "<" + inc.name + ">"
	}
	where := fmt.Sprintf("%s:%d includes %s", from, inc.line, quoted)
	switch {
	case isLibrary && library == "", inc.angle && !nested && isStandard(inc.name), inc.unclear:
	case isLibrary && (nested && rest != "" || first == inc.name):
		r.add(library, where)
	case strings.HasPrefix(inc.name, "ck_tile"):
		r.add(needsCK, where)
	default:
		r.add(missingHeader, where)
	}
	return ""
}

// isStandard reports whether a header is of C, C++ or POSIX.
func isStandard(name string) bool {
	const posix = " assert.h ctype.h dlfcn.h errno.h fcntl.h float.h inttypes.h limits.h math.h signal.h stdarg.h stdbool.h stddef.h " +
		"stdint.h stdio.h stdlib.h string.h time.h unistd.h pthread.h "
	if strings.HasSuffix(name, ".h") {
		return strings.Contains(posix, " "+name+" ")
	}
	return !strings.Contains(name, ".")
}
