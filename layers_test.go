package aiter_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aiter-go/aiter"
)

// layers lists, for each package of this module, the packages that it may import. A
// package or an import that is not listed is an error. Test files may import any package.
var layers = map[string][]string{
	"":                    {},
	"internal/sys":        {},
	"internal/dl":         {"internal/sys"},
	"internal/testenv":    {},
	"tensor":              {},
	"internal/filedata":   {"tensor"},
	"tensor/npy":          {"internal/filedata", "tensor"},
	"tensor/safetensors":  {"internal/filedata", "tensor"},
	"internal/ffi":        {"internal/dl", "tensor"},
	"internal/filehash":   {"internal/sys"},
	"internal/depfile":    {},
	"jit/target":          {},
	"jit/schema":          {},
	"internal/shell":      {},
	"internal/cache":      {"internal/shell", "internal/sys"},
	"internal/spelling":   {},
	"internal/servers":    {"internal/cache"},
	"internal/tuning":     {"internal/cache"},
	"internal/opconfig":   {"internal/spelling", "jit/target", "jit/schema", "tensor"},
	"internal/process":    {"internal/sys"},
	"internal/slots":      {},
	"internal/deps":       {"internal/cache", "internal/filehash", "internal/sys", "internal/toolchain"},
	"internal/toolchain":  {"jit/target", "internal/filehash", "internal/process", "internal/sys"},
	"internal/codeobject": {},
	"internal/assembly":   {"internal/opconfig"},
	"jit": {"internal/assembly", "internal/cache", "internal/codeobject", "internal/depfile", "internal/deps", "internal/filehash",
		"internal/opconfig", "internal/process", "internal/shell", "internal/slots", "internal/sys", "jit/schema", "jit/target",
		"internal/toolchain", "internal/tuning"},
	"internal/watch":    {"jit", "internal/filehash", "internal/opconfig", "internal/sys"},
	"internal/upstream": {"internal/opconfig", "internal/process", "internal/toolchain", "jit/schema", "jit/target"},
	"trace":             {},
	"device":            {"internal/dl", "jit/target", "tensor", "trace"},
	"internal/verify":   {"device", "tensor"},
	"internal/hostcall": {"device", "tensor", "trace"},
	"internal/settings": {"", "jit", "internal/cache", "internal/deps", "internal/filehash", "internal/opconfig", "internal/sys",
		"internal/toolchain", "jit/target"},
	"internal/term": {},
	"registry": {"device", "internal/ffi", "jit", "internal/cache", "internal/opconfig", "internal/settings", "internal/spelling",
		"jit/schema", "jit/target", "internal/watch", "internal/verify", "internal/hostcall", "internal/tuning", "tensor", "trace"},
	"fleet":                 {"jit", "internal/cache", "internal/servers", "internal/settings", "internal/sys", "jit/target"},
	"buildfarm":             {"jit", "internal/cache", "internal/servers", "internal/settings"},
	"causalconv1d":          {"registry", "tensor"},
	"metrics":               {"", "jit", "internal/cache", "device"},
	"otelaiter":             {"jit", "registry"},
	"examples/fleetsim":     {},
	"examples/aiterservice": {"aitercmd", "registry"},
	"examples/service":      {"causalconv1d", "device", "examples/service/api", "metrics", "registry", "tensor", "trace"},
	"examples/service/api":  {"tensor", "tensor/npy", "tensor/safetensors"},
	"examples/service/load": {"examples/service/api", "tensor"},
	"op_tests":              {"device", "jit/schema", "registry", "tensor"},
	"op_tests/aiterops":     {"op_tests", "registry", "tensor"},
	"internal/perf":         {"device", "op_tests", "tensor"},
	"internal/report":       {},
	"internal/profile":      {"internal/report", "internal/spelling", "trace"},
	"cmd/aiterctl":          {"aitercmd"},
	"aitercmd": {"", "buildfarm", "device", "fleet", "jit", "internal/cache", "internal/codeobject", "internal/opconfig", "internal/shell",
		"internal/slots", "internal/sys", "jit/schema", "jit/target", "internal/toolchain", "internal/watch", "op_tests",
		"op_tests/aiterops", "internal/perf",
		"internal/profile", "internal/report", "internal/settings", "internal/spelling", "internal/term", "internal/upstream", "registry",
		"tensor", "tensor/npy",
		"tensor/safetensors", "trace", "internal/tuning"},
}

// owners lists the external modules that only some packages may import.
var owners = map[string][]string{
	"github.com/ebitengine/purego":          {"internal/dl"},
	"github.com/BurntSushi/toml":            {"internal/opconfig", "internal/upstream"},
	"github.com/spf13/cobra":                {"aitercmd"},
	"github.com/vmihailenco/msgpack":        {"internal/codeobject"},
	"github.com/ianlancetaylor/demangle":    {"internal/codeobject"},
	"golang.org/x/term":                     {"internal/term"},
	"github.com/rs/zerolog":                 {"internal/term"},
	"github.com/cyphar/filepath-securejoin": {"internal/toolchain"},
	"github.com/fsnotify/fsnotify":          {"internal/watch"},
	"github.com/prometheus/client_golang":   {"metrics", "examples/service"},
	"go.opentelemetry.io/otel":              {"otelaiter"},
	"oras.land/oras-go/v2":                  {"fleet"},
	"google.golang.org/grpc":                {"buildfarm"},
	"google.golang.org/genproto":            {"buildfarm"},
	"github.com/bazelbuild/remote-apis":     {"buildfarm"},
	"cloud.google.com/go/longrunning":       {"buildfarm"},
	"github.com/opencontainers":             {"fleet"},
}

func TestLayers(t *testing.T) {
	found := map[string]bool{}
	for file, imports := range sourceImports(t) {
		pkg := path.Dir(file)
		if pkg == "." {
			pkg = ""
		}
		found[pkg] = true
		allowed, known := layers[pkg]
		if !known {
			t.Errorf("%s: package %q is not in layers; add it to layers_test.go and ARCHITECTURE.md", file, pkg)
		}
		for _, imp := range imports {
			checkImport(t, file, pkg, imp, allowed)
		}
	}
	for pkg := range layers {
		if !found[pkg] {
			t.Errorf("layers lists %q, which is not a package; remove it", pkg)
		}
	}
}

func checkImport(t *testing.T, file, pkg, imp string, allowed []string) {
	t.Helper()
	if imp == "C" {
		t.Errorf("%s uses cgo; use purego", file)
	}
	for mod, owner := range owners {
		if (imp == mod || strings.HasPrefix(imp, mod+"/")) && !slices.Contains(owner, pkg) {
			t.Errorf("%s imports %s, which only %s may import", file, imp, strings.Join(owner, " and "))
		}
	}
	rel, inside := strings.CutPrefix(imp, aiter.ModulePath)
	if !inside {
		return
	}
	if rel = strings.TrimPrefix(rel, "/"); !slices.Contains(allowed, rel) {
		t.Errorf("%s imports %q, which layers does not allow for package %q", file, rel, pkg)
	}
}

// walkSources calls visit with each file of the project that has one of the extensions, such as ".go".
func walkSources(visit func(file string) error, extensions ...string) error {
	return fs.WalkDir(os.DirFS("."), ".", func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && file != "." || e.Name() == "testdata"):
			return fs.SkipDir
		case !slices.Contains(extensions, filepath.Ext(file)):
			return nil
		}
		return visit(file)
	})
}

// sourceImports returns the imports of each Go file that is not a test, by file.
func sourceImports(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := walkSources(func(file string) error {
		if strings.HasSuffix(file, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		out[file] = nil
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			out[file] = append(out[file], p)
		}
		return nil
	}, ".go")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestNoInitFunctions forbids init functions: importing a package must have no effect.
func TestNoInitFunctions(t *testing.T) {
	for file := range sourceImports(t) {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function; initialize the value where it is used", file)
			}
		}
	}
}

var quotedInclude = regexp.MustCompile(`(?m)^ *# *include "([^"]+)"`)

// kernelCode returns the side to which a file below csrc/kernels belongs: cpu, gpu, or shared, which both sides include.
func kernelCode(file string) string {
	dir, family := path.Dir(file), path.Dir(path.Dir(file)) == "csrc/kernels"
	switch {
	case path.Ext(file) == ".cpp" || path.Base(dir) == "cpu":
		return "cpu"
	case path.Ext(file) == ".h" && (path.Base(dir) == "common" || family) && !strings.HasSuffix(file, "_gpu.h"):
		return "shared"
	}
	return "gpu"
}

// TestKernelHeaders checks that the folder of a kernel's header determines whether it is CPU code, GPU code or shared code, that only
// headers in shared folders have the suffix _gpu, and that neither side includes a header of the other.
func TestKernelHeaders(t *testing.T) {
	sides := map[string]int{}
	err := walkSources(func(file string) error {
		if !strings.HasPrefix(file, "csrc/kernels/") {
			return nil
		}
		side := kernelCode(file)
		sides[side]++
		if name := path.Base(file); strings.HasSuffix(name, "_cpu.h") ||
			strings.HasSuffix(name, "_gpu.h") && path.Base(path.Dir(file)) != "common" {
			t.Errorf("%s: only headers in common/ have a suffix, _gpu, if they are GPU code; rename it", file)
		}
		for _, m := range quotedInclude.FindAllStringSubmatch(readText(t, file), -1) {
			header := path.Join(path.Dir(file), m[1])
			if other := kernelCode(header); other != side && other != "shared" {
				t.Errorf("%s, which is %s code, includes %s, which is %s code", file, side, header, other)
			}
		}
		return nil
	}, ".h", ".hip", ".cpp")
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{"cpu", "gpu", "shared"} {
		if sides[side] < 10 {
			t.Errorf("found %d files of %s code below csrc/kernels, want 10 or more", sides[side], side)
		}
	}
}
