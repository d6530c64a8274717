package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit/target"
)

// DefaultTimeout is the time limit of one query.
const DefaultTimeout = time.Minute

// Finder finds toolchains. The zero value uses the process's environment, remembers nothing and is ready to use.
// It is safe for concurrent use while its fields do not change.
type Finder struct {
	Env     func(string) string // os.Getenv if nil
	Memo    *filehash.Memo      // remembers digests and answers; in memory for one call if nil
	Timeout time.Duration       // of one query; DefaultTimeout if 0
}

// place is a path at which a compiler may be.
type place struct {
	from string // where the path comes from: "HIPCC=/x/hipcc", "PATH"
	path string // "" if there is no program
	why  string // the reason why there is no program, "" if there is one
	last bool   // the user named it, so that the search ends here
	rocm string // the ROCm folder it belongs to, if known
}

// vendorRules lists the places in which a vendor's compiler is searched.
type vendorRules struct {
	program   string   // variable that names the compiler
	prefixes  []string // variables that name an installation
	names     []string // programs on PATH
	installed string   // where it is installed by default
	hint      string
}

// rulesFor returns the rules of a vendor, false for an unknown vendor.
func rulesFor(v target.Vendor) (vendorRules, bool) {
	switch v {
	case target.HIP:
		return vendorRules{"HIPCC", []string{"ROCM_PATH", "ROCM_HOME"}, []string{"hipcc"}, "/opt/rocm",
			"install ROCm's hipcc, or set HIPCC to its path"}, true
	case target.CUDA:
		return vendorRules{"NVCC", []string{"CUDA_HOME", "CUDA_PATH"}, []string{"nvcc"}, "/usr/local/cuda",
			"install the CUDA toolkit, or set NVCC to the path of nvcc"}, true
	case target.CPU:
		return vendorRules{"CXX", nil, []string{"c++", "g++", "clang++"}, "",
			"install g++ or clang++, or set CXX to the path of a C++ compiler"}, true
	}
	return vendorRules{}, false
}

// Find returns the toolchain for t. It fails with *NotFoundError, *UnsupportedTargetError, *ProbeError, *RootError, and
// the errors of reading the toolchain's files.
func (f *Finder) Find(ctx context.Context, t target.Target) (*Toolchain, error) {
	return f.Session().Find(ctx, t)
}

func (f *Finder) env(name string) string {
	if f.Env == nil {
		return os.Getenv(name)
	}
	return f.Env(name)
}

// locate returns the first place that has the vendor's compiler.
func (f *Finder) locate(v target.Vendor) (place, error) {
	rules, ok := rulesFor(v)
	if !ok {
		return place{}, fmt.Errorf("find a compiler: vendor %q, expected hip, cuda or cpu; make targets with target.Parse", v)
	}
	missing := &NotFoundError{Vendor: v, Hint: rules.hint}
	for _, p := range f.places(rules) {
		if p.why == "" {
			return p, nil
		}
		missing.Looked = append(missing.Looked, p.from+": "+p.why)
		if p.last {
			missing.Named = p.from
			break
		}
	}
	return place{}, missing
}

// places returns the places in which a compiler is searched, in order.
func (f *Finder) places(rules vendorRules) []place {
	var all []place
	if want := f.env(rules.program); want != "" {
		return []place{f.named(rules.program, want)}
	}
	for _, variable := range rules.prefixes {
		if prefix := f.env(variable); prefix != "" {
			p := check(variable+"="+prefix, filepath.Join(prefix, "bin", rules.names[0]))
			p.rocm = prefix
			all = append(all, p)
		}
	}
	for _, name := range rules.names {
		all = append(all, f.onPath("PATH", name))
	}
	if rules.installed != "" {
		all = append(all, check(rules.installed, filepath.Join(rules.installed, "bin", rules.names[0])))
	}
	return all
}

// named returns the compiler that a variable names, by path or by a name on PATH.
func (f *Finder) named(variable, want string) place {
	from := variable + "=" + want
	p := check(from, want)
	if !strings.ContainsRune(want, filepath.Separator) {
		p = f.onPath(from, want)
	}
	if p.why != "" && strings.ContainsAny(want, " \t") {
		p.why += " (name one program; put flags into the configuration)"
	}
	p.last = true
	return p
}

// onPath returns the first place on PATH with the program.
func (f *Finder) onPath(from, name string) place {
	for _, dir := range filepath.SplitList(searchPath(f.env)) {
		if p := check(from, filepath.Join(dir, name)); filepath.IsAbs(dir) && p.why == "" {
			return p
		}
	}
	return place{from: from, why: "no " + name}
}

// check returns the place of the program at path, or the reason why that is not a program.
func check(from, path string) place {
	p := place{from: from}
	abs, err := filepath.Abs(path)
	if err != nil {
		p.why = err.Error()
		return p
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.why = "no " + abs
	case err != nil:
		p.why = err.Error()
	case !info.Mode().IsRegular():
		p.why = abs + " is not a file"
	case info.Mode().Perm()&0o111 == 0:
		p.why = abs + " is not executable"
	}
	p.path = abs
	return p
}
