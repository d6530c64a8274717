package upstream

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// tree returns a checkout with the given files: pairs of name and text.
func tree(files ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		m[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return m
}

func module(fields string) string { return `{"module_a": {` + fields + `}}` }

func TestReasons(t *testing.T) {
	const source = `"srcs": ["f'{AITER_CSRC_DIR}/a.cu'"]`
	for _, test := range []struct {
		name, fields, text string
		want               []string
	}{
		{"plain", source, "#include <vector>\n#include <hip/hip_runtime.h>\n#include <math.h>\n", nil},
		{"torch", source, "#include \"h.h\"\n", []string{"torch: csrc/include/h.h:2 includes <torch/all.h>"}},
		{"replaced header", source, "#include <ck_tile/core.hpp>\n#include <ck_tile/host.hpp>",
			[]string{"Composable Kernel: csrc/a.cu:2 includes <ck_tile/host.hpp>",
				`missing header: @ck/ck_tile/core.hpp:2 includes "shim.h"`}},
		{"branches", source, "#if ENABLE_CK\n#include <ck/ck.hpp>\n#elif !defined(ON) || ON != 1\n" +
			"#include <torch/a.h>\n#else\n#include <ATen/b.h>\n#endif",
			[]string{"torch: csrc/a.cu:6 includes <ATen/b.h>"}},
		{"unclear branch", source, "#ifdef SOMETHING\n#include \"none.h\"\n#include <fmt/core.h>\n#endif", nil},
		{"comments", source, "/* \n#include <torch/a.h> */ /**/ #include \"no.h\"\n// \\\n#include <torch/b.h>\n" +
			"const char* s = \"/*\";\n#  include /**/ <fmt/core.h> // \n",
			[]string{`missing header: csrc/a.cu:2 includes "no.h"`, "fmt: csrc/a.cu:6 includes <fmt/core.h>"}},
		{"missing", source + `, "extra_include": ["f'{AITER_CSRC_DIR}/../../outside'"]`,
			"#include \"../../etc/passwd\"\n#include <no/such.h>",
			[]string{`missing header: csrc/a.cu:1 includes "../../etc/passwd"`, "missing header: csrc/a.cu:2 includes <no/such.h>"}},
		{"found in an extra folder", source + `, "extra_include": ["f'{AITER_CSRC_DIR}/extra/'"]`, "#include <only.h>", nil},
		{"assembly", source, "int AiterAsmKernels;\nstatic AiterAsmKernel k;",
			[]string{"assembly code objects: csrc/a.cu:2 uses AiterAsmKernel"}},
		{"generators", source + `, "blob_gen_cmd": ["f'{AITER_META_DIR}/hsa/codegen.py -m x'", "f'{CK_DIR}/gen.py'", ` +
			`"f'{AITER_CSRC_DIR}/gen.py --x'", "''", "None"]`,
			"#include \"made.hpp\"", []string{"Composable Kernel: the generator 3rdparty/composable_kernel/gen.py",
				"assembly code objects: the generator hsa/codegen.py", "generator: csrc/gen.py"}},
		{"sources", `"srcs": ["'/etc/passwd'", "'../x.cu'", "f'{CK_DIR}/x'", "f'{AITER_CSRC_DIR}/none.cu'", ` +
			`"f'{AITER_CSRC_DIR}/folder'", "f'{AITER_CSRC_DIR}/include'", "f'{get_gfx()}.cu'"]`, "",
			[]string{"torch: csrc/folder/z.cu:1 includes <c10/x.h>", "Composable Kernel: the source 3rdparty/composable_kernel/x",
				"missing source: /etc/passwd", "missing source: ../x.cu", "missing source: csrc/none.cu",
				"missing source: csrc/include", "missing source: {get_gfx()}.cu"}},
		{"third party", source + `, "third_party": ["'ComposableKernel'", "'HipKittens'"]`, "", []string{
			"Composable Kernel: third_party in aiter/jit/optCompilerConfig.json", "HipKittens: third_party in aiter/jit/optCompilerConfig.json"}},
		{"cycle", source, "#include \"cycle.h\"", nil},
	} {
		files := tree(configFile, module(test.fields), "csrc/a.cu", test.text, "csrc/include/h2.h", "",
			"csrc/include/h.h", "\n#include <torch/all.h>",
			"csrc/extra/only.h", "",
			"csrc/folder/z.cu", "#include <c10/x.h>", "csrc/include/cycle.h", "#include \"cycle.h\"\n#include \"a.cu\"")
		c, err := read(files)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var got []string
		standins := Standins{Files: tree("ck/ck_tile/core.hpp", "#include \"h2.h\"\n#include \"shim.h\""), Include: []string{"ck"},
			Flags: []string{"-DENABLE_CK=0", "-DON"}}
		for _, r := range c.Reasons(c.Modules[0], standins) {
			got = append(got, r.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

func TestConfigWrong(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "expected a JSON object",
		`[]`:                               "expected a JSON object of modules, got [",
		`{"module_a": 1}`:                  "module_a: json",
		`{"module_a": {}} x`:               "text after the object",
		`{"module_a": {}`:                  "EOF",
		`{"module_a": {}, "module_a": {}}`: "module_a is declared twice",
		`{"../a": {}, "": {}}`:             `bad module name "../a"`,
		module(`"srcs": [1]`):              "srcs: expected a string or a list of strings",
		module(`"srcs": ["f'{'"]`):         `srcs: "f'{'": f-string`,
		module(`"flags_extra_hip": ["__import__('os').system('true') ;"]`):   "expected the end",
		module(`"flags_extra_hip_per_source": {"a": "b"}`):                   "flags_extra_hip_per_source",
		`{"module_a": {"srcs": "'"}, "module_b": {"blob_gen_cmd": "f'{}'"}}`: "module_b: blob_gen_cmd",
	} {
		c, err := read(tree(configFile, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, error %v, want %q", text, c, err, want)
		}
	}
}

// Open and Reasons do not follow links that lead out of the checkout.
func TestOpenLinks(t *testing.T) {
	dir := t.TempDir()
	config := module(`"srcs": ["f'{AITER_CSRC_DIR}/a.cu'", "f'{AITER_CSRC_DIR}/b.cu'"]`)
	for name, text := range tree(configFile, config, "secret", "", "csrc/b.cu", "#include \"c.h\"") {
		if name = filepath.Join(dir, "aiter", name); name == filepath.Join(dir, "aiter", "secret") {
			name = filepath.Join(dir, "secret")
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.cu", "c.h"} {
		if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(dir, "aiter/csrc", name)); err != nil {
			t.Skip(err)
		}
	}
	c, err := Open(filepath.Join(dir, "aiter"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	for _, r := range c.Reasons(c.Modules[0], Standins{Files: tree()}) {
		got = append(got, r.String())
	}
	want := []string{"missing source: csrc/a.cu", `missing header: csrc/b.cu:1 includes "c.h"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var none *NotACheckoutError
	if _, err := Open(dir); !errors.As(err, &none) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a folder without AIter: %v", err)
	}
}

func TestCommit(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	for name, files := range map[string][]string{
		"detached": {".git/HEAD", id + "\n"},
		"branch":   {".git/HEAD", "ref: refs/heads/main\n", ".git/refs/heads/main", id},
		"packed":   {".git/HEAD", "ref: refs/heads/main\n", ".git/packed-refs", "# pack\n" + id + " refs/heads/main\n"},
		"worktree": {".git", "gitdir: g/worktrees/w\n", "g/worktrees/w/HEAD", "ref: refs/heads/x",
			"g/worktrees/w/commondir", "../..\n", "g/refs/heads/x", id},
		"none":    {},
		"outside": {".git/HEAD", "ref: ../../x", "x", id},
		"no hash": {".git/HEAD", "ref: refs/heads/main\n", ".git/refs/heads/main", "text"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, tree(files...)); err != nil {
			t.Fatal(err)
		}
		want := id
		if name == "none" || name == "outside" || name == "no hash" {
			want = ""
		}
		if got := commitOf(dir); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(module(`"srcs": ["f'{AITER_CSRC_DIR}/a.cu'"], "flags_extra_hip": ["'-O3'"], "blob_gen_cmd": "''"`), "#if A\n#include <b>\n#endif")
	f.Add(`{"a": {"flags_extra_hip_per_source": {"*": ["x"]}, "third_party": ["'x'"]}}`, "#include \"a.cu\"")
	f.Fuzz(func(t *testing.T, config, source string) {
		c, err := read(tree(configFile, config, "csrc/a.cu", source))
		if err != nil {
			return
		}
		for _, s := range c.Modules {
			for _, r := range c.Reasons(s, Standins{Files: tree()}) {
				if r.What == "" || r.Where == "" {
					t.Errorf("an empty reason of %s", s.Name)
				}
			}
		}
	})
}

func TestNeeds(t *testing.T) {
	c, err := read(tree(configFile, module(`"srcs": ["f'{AITER_CSRC_DIR}/a.cu'"]`),
		"csrc/a.cu", "#include <rocprim/rocprim.hpp>\n#include <hipcub/hipcub.hpp>\n#ifdef SOMETHING\n#include <fmt/core.h>\n#endif"))
	if err != nil {
		t.Fatal(err)
	}
	reasons, needs := c.reasons(c.Modules[0], Standins{Files: tree()})
	s := Status{State: Possible, Needs: needs}
	if got := s.Words(); got != "possible, with hipCUB and rocPRIM" || len(reasons) > 0 {
		t.Errorf("got %q, reasons %v", got, reasons)
	}
}

// TestSharedSource has a source that two modules have: it counts for the module whose other sources are fewer.
func TestSharedSource(t *testing.T) {
	c, err := read(tree(configFile, `{"module_a": {"srcs": ["f'{AITER_CSRC_DIR}/a.cu'", "f'{AITER_CSRC_DIR}/shared.cu'"]},
		"module_b": {"srcs": ["f'{AITER_CSRC_DIR}/b.cu'", "f'{AITER_CSRC_DIR}/c.cu'", "f'{AITER_CSRC_DIR}/shared.cu'"]},
		"module_c": {"srcs": "f'{AITER_CSRC_DIR}/c.cu'"}}`, "csrc/a.cu", "", "csrc/b.cu", "", "csrc/c.cu", "", "csrc/shared.cu", ""))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`#include "shared.cu"`: "module_a",
		"#include \"shared.cu\"\n#include \"b.cu\"\n#include \"c.cu\"": "module_b module_c",
		`#include "none.cu"`: "",
	} {
		d := Declared{Files: tree("x.hip", text), Config: &opconfig.Config{Modules: []*opconfig.Module{
			{Name: "module_aiter_x", Sources: []opconfig.Source{{Files: []string{"x.hip"}}}}}}}
		var in []string
		for _, s := range c.Status(d) {
			if s.State == In {
				in = append(in, s.Name)
			}
		}
		if got := strings.Join(in, " "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
