package assembly

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// folderOf returns a folder of code objects: pairs of name and text.
func folderOf(files ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		m[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return m
}

const columns = "knl_name,co_name,tile,dtype\n"

func names(o *Objects) string {
	var list []string
	for _, f := range o.Files {
		list = append(list, f.Name)
	}
	return strings.Join(list, " ")
}

func TestFind(t *testing.T) {
	files := folderOf(
		"gfx942/gemm/b.csv", columns+"k2,x/two.co,2,fp8\n/* a\n comment */k1,one.co,1.0,bf16 // the first\n;k3,three.co,3,fp8\n\n",
		"gfx942/gemm/sub/a.v2.csv", "co_name,knl_name\nfour.co,k4\n",
		"gfx942/gemm/one.co", "1", "gfx942/gemm/x/two.co", "2", "gfx942/gemm/sub/four.co", "4", "gfx942/gemm/unnamed.co", "",
		"gfx942/single.co", "", "gfx950/only.co", "", "gfx950/gemm/b.csv", "extra,knl_name,co_name,word\n7,k,k.co,w\n",
		"readme.md", "")
	o, err := Find(files, "gfx942", &opconfig.Assembly{Tables: []string{"gemm"}, Files: []string{"s*.co", "only.co"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(o), "gfx942/gemm/one.co gfx942/gemm/sub/four.co gfx942/gemm/x/two.co gfx942/single.co"; got != want {
		t.Errorf("files are %s, want %s", got, want)
	}
	if got := strings.Join(o.Tables, " "); got != "gfx942/gemm/b.csv gfx942/gemm/sub/a.v2.csv gfx950/gemm/b.csv" {
		t.Errorf("tables are %s", got)
	}
	header := o.Headers["asm_gemm_configs.hpp"]
	for _, want := range []string{
		"struct gemmConfig {\n  std::string knl_name;\n  std::string co_name;\n  std::string arch;\n  int tile;\n  std::string dtype;\n" +
			"  int extra;\n  std::string word;\n};",
		"static constexpr gemmRow rows_b[] = {\n" + `    {"k2", "gemm/x/two.co", 2, "fp8", 0, ""},` + "\n" +
			`    {"k1", "gemm/one.co", 1, "bf16", 0, ""},` + "\n};\n",
		`{"k4", "gemm/sub/four.co", 0, "", 0, ""},`, "static CFG cfg_a = gemm_table(rows_a,", `std::string("gfx942") + r.knl_name`,
	} {
		if !strings.Contains(header, want) {
			t.Errorf("the header lacks\n%s\nit is\n%s", want, header)
		}
	}
	if strings.Contains(header, `"w"`) {
		t.Errorf("the header has a row of another architecture:\n%s", header)
	}
}

// A table without rows of the architecture is empty.
func TestFindEmpty(t *testing.T) {
	o, err := Find(folderOf("gfx942/gemm/b.csv", columns, "gfx950/gemm/b.csv", columns+"k,k.co,1,x\n"), "gfx942",
		&opconfig.Assembly{Tables: []string{"gemm"}})
	if err != nil || len(o.Files) > 0 || !strings.Contains(o.Headers["asm_gemm_configs.hpp"], "static CFG cfg_b;\n") {
		t.Errorf("got %v, error %v", o, err)
	}
}

func TestFindErrors(t *testing.T) {
	for want, files := range map[string]fstest.MapFS{
		"gfx942/gemm: the folder cannot be read (file does not exist), so there are no code objects for gfx942": folderOf(
			"gfx950/gemm/a.csv", columns),
		"gfx942/gemm: expected a loader table":                            folderOf("gfx942/gemm/a.co", ""),
		"gfx942/gemm/a.csv:1: expected a column co_name, got knl_name, x": folderOf("gfx942/gemm/a.csv", "knl_name,x\n"),
		`gfx942/gemm/a.csv:1: column "a b"`:                               folderOf("gfx942/gemm/a.csv", "knl_name,co_name,a b\n"),
		`gfx942/gemm/a.csv:1: column "co_name"`:                           folderOf("gfx942/gemm/a.csv", "knl_name,co_name,co_name\n"),
		`gfx942/gemm/a.csv:1: column "arch"`:                              folderOf("gfx942/gemm/a.csv", "knl_name,co_name,arch\n"),
		"gfx942/gemm/a.csv: no line with the names":                       folderOf("gfx942/gemm/a.csv", "// nothing\n"),
		"gfx942/gemm/a.csv: record on line 3: wrong number of fields":     folderOf("gfx942/gemm/a.csv", columns+"k,k.co,1,x\nk,k.co,1\n"),
		`gfx942/gemm/a.csv:2: dtype: "x\\" has a character`:               folderOf("gfx942/gemm/a.csv", columns+"k,k.co,1,x\\\n"),
		`in the folder gemm, got "k" and "../../k.co"`:                    folderOf("gfx942/gemm/a.csv", columns+"k,../../k.co,1,x\n"),
		`gfx942/gemm/a.csv:3: dtype: "x\"y" has a character`: folderOf(
			"gfx942/gemm/a.csv", columns+"/* a\nb */k,k.co,1,\"x\"\"y\"\n"),
		`in the folder gemm, got "k" and "../k.co"`:                  folderOf("gfx942/gemm/a.csv", columns+"k,../k.co,1,x\n"),
		`in the folder gemm, got "" and "k.co"`:                      folderOf("gfx942/gemm/a.csv", columns+",k.co,1,x\n"),
		"gfx942/gemm/a-b.csv: expected a name that is an identifier": folderOf("gfx942/gemm/a-b.csv", columns),
		"gfx942/gemm/k.co: the code object, which gfx942/gemm/a.csv names, cannot be read (file does not exist)": folderOf(
			"gfx942/gemm/a.csv", columns+"k,k.co,1,x\n"),
		"gfx942/gemm/k.co: the code object is not a regular file": folderOf(
			"gfx942/gemm/a.csv", columns+"k,k.co,1,x\n", "gfx942/gemm/k.co/x", ""),
		"gfx942/gemm/a.csv: the table has more than":                      folderOf("gfx942/gemm/a.csv", strings.Repeat("#\n", maxTable)),
		"gfx942/gemm/a.csv: the table cannot be read: not a regular file": {"gfx942/gemm/a.csv": {Mode: fs.ModeNamedPipe}},
	} {
		_, err := Find(files, "gfx942", &opconfig.Assembly{Tables: []string{"gemm"}})
		var own *Error
		if !errors.As(err, &own) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	_, err := Find(folderOf("gfx942/a.co", ""), "gfx942", &opconfig.Assembly{Files: []string{"b*.co"}})
	if err == nil || !strings.Contains(err.Error(), "gfx942/b*.co: there is no such code object, for any architecture") {
		t.Errorf("a pattern that matches nothing: %v", err)
	}
	_, err = Find(os.DirFS(filepath.Join(t.TempDir(), "none")), "gfx942", &opconfig.Assembly{Files: []string{"x"}})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the folder: %v", err)
	}
	absent := &opconfig.Assembly{Tables: []string{"gemm"}, Absent: []string{"gfx942/gemm/k*.co"}}
	if o, err := Find(folderOf("gfx942/gemm/a.csv", columns+"k,k.co,1,x\n"), "gfx942", absent); err != nil || len(o.Files) != 0 {
		t.Errorf("an absent code object: %v, error %v", o, err)
	}
}

// Code objects that the link could not hold in memory are refused before they are read.
func TestLargeCodeObject(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "gfx942"), 0o755); err != nil {
		t.Fatal(err)
	}
	large, err := os.Create(filepath.Join(dir, "gfx942", "k.co"))
	if err == nil {
		err = errors.Join(large.Truncate(maxObjects+1), large.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	var own *Error
	_, err = Find(os.DirFS(dir), "gfx942", &opconfig.Assembly{Files: []string{"*.co"}})
	if !errors.As(err, &own) || own.Path != "gfx942/k.co" {
		t.Errorf("got %v, want an *Error of gfx942/k.co", err)
	}
}

// Headers is a folder that can be copied.
func TestHeaders(t *testing.T) {
	h := Headers{"a.hpp": "text\n", "b.hpp": ""}
	if err := fstest.TestFS(h, slices.Sorted(maps.Keys(h))...); err != nil {
		t.Error(err)
	}
	dir := filepath.Join(t.TempDir(), "to")
	if err := os.CopyFS(dir, h); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a.hpp")); err != nil || string(data) != "text\n" {
		t.Errorf("copied: %q, error %v", data, err)
	}
}

func FuzzTable(f *testing.F) {
	f.Add(columns+"k,k.co,1,x\n", "co_name,knl_name\n/*")
	f.Add(columns+"k-k.\"", "-o_n") // a line without a field
	f.Fuzz(func(t *testing.T, a, b string) {
		files := folderOf("gfx942/gemm/a.csv", a, "gfx950/gemm/a.csv", b, "gfx942/gemm/k.co", "")
		o, err := Find(files, "gfx942", &opconfig.Assembly{Tables: []string{"gemm"}, Absent: []string{"*/*/*", "*/*/*/*"}})
		if err == nil && !strings.Contains(o.Headers["asm_gemm_configs.hpp"], "cfg_a") {
			t.Errorf("no table in %q", o.Headers)
		}
	})
}
