//go:build linux

package codeobject_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/testenv"
)

const hostUnit = `extern "C" __attribute__((visibility("hidden"))) const int aiter_device_code_1;
extern "C" void one(float*) {}
extern "C" const int* code() { return &aiter_device_code_1; }
`

// compileFile compiles a source and returns the output.
func compileFile(t *testing.T, source string, argv ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "k.cu"), filepath.Join(dir, "k.out")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], append(argv[1:], in, "-o", out)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestEmbedFatbin(t *testing.T) {
	nvcc := testenv.Tool(t, "nvcc")
	host := compileFile(t, hostUnit, "c++", "-x", "c++", "-fPIC", "-c")
	fatbin := func(source string) []byte {
		return compileFile(t, source, nvcc, "-fatbin", "--no-compress", "-gencode=arch=compute_90a,code=sm_90a")
	}
	const kernels = "extern \"C\" __global__ void one(float* p) { *p = 1; }\n__global__ void two(float* p) { *p = 2; }\n"
	const anonymous = "namespace { __global__ void k(float* p) { *p = 1; } }\nvoid* f() { return (void*)k; }\n"
	// The host code of a static kernel is a local function of that name.
	const static = "static __global__ void k(float* p) { *p = 1; }\nvoid* f() { return (void*)k; }\n"
	const staticHost = hostUnit + "static void k(float*) {}\nvoid* f() { return (void*)k; }\n"
	code := fatbin(kernels)
	object, err := codeobject.EmbedFatbin(host, code)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Section(".nv_fatbin").Data(); err != nil || !bytes.Equal(got, code) {
		t.Errorf("the section has %d bytes, error %v; want the fatbin of %d bytes", len(got), err, len(code))
	}
	table, err := f.Section(".data.rel.ro").Data()
	if err != nil || binary.LittleEndian.Uint32(table[8:]) != 1 || binary.LittleEndian.Uint32(table[12:]) != 900 ||
		binary.LittleEndian.Uint64(table[32:]) != 1 || string(table[56:]) != "one\x00" {
		t.Errorf("the table is %q, error %v; want 1 shard for 900 with 1 kernel, one", table, err)
	}
	symbols, err := f.Symbols()
	if err != nil || len(symbols) != 4 || symbols[2].Name != "aiter_device_code_1" || symbols[3].Name != "one" ||
		symbols[3].Section != elf.SHN_UNDEF {
		t.Errorf("symbols are %v, error %v", symbols, err)
	}

	testShards(t, fatbin)
	for want, pair := range map[string][2][]byte{
		"remove `static`":                   {compileFile(t, staticHost, "c++", "-x", "c++", "-fPIC", "-c"), fatbin(static)},
		"anonymous namespace":               {host, fatbin(anonymous)},
		"does not refer to its device":      {compileFile(t, "int a;\n", "c++", "-x", "c++", "-c"), code},
		"host object":                       {host[:100], code},
		"ends after the end":                {host, code[:len(code)-8]},
		"the code of 0 targets":             {host, nil},
		"the code of 2 targets, expected 1": {host, append(bytes.Clone(code), code...)},
	} {
		if _, err := codeobject.EmbedFatbin(pair[0], pair[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// testShards checks that of two fatbins each has the kernel that is empty in the other one, also if both fill the same memory.
func testShards(t *testing.T, fatbin func(string) []byte) {
	t.Helper()
	const source = "#define BODY(k, x) { if constexpr (SHARD == k) { x; } }\nextern \"C\" __global__ void two(float* p) BODY(2, *p = 2)\n" +
		"extern \"C\" __global__ void one(float* p) BODY(1, for (int i = 0; i < 99; i++) p[i * i] = p[i] / 3)\n"
	shard := func(k string) []byte { return fatbin("#define SHARD " + k + "\n" + source) }
	host := compileFile(t, hostUnit+"extern \"C\" void two(float*) {}\n", "c++", "-x", "c++", "-fPIC", "-c")
	object, err := codeobject.EmbedFatbin(host, shard("1"), shard("2"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	table, err := f.Section(".data.rel.ro").Data()
	if err != nil || binary.LittleEndian.Uint32(table[8:]) != 2 || binary.LittleEndian.Uint64(table[32:]) != 1 ||
		binary.LittleEndian.Uint64(table[56:]) != 1 || string(table[96:]) != "one\x00two\x00" {
		t.Errorf("the table is %q, error %v; want one in the first shard, two in the second", table, err)
	}
	other := fatbin("extern \"C\" __global__ void one(float* p) { *p = 3; }\n")
	if _, err := codeobject.EmbedFatbin(host, fatbin("extern \"C\" __global__ void one(float* p) { *p = 1; }\n"), other); err == nil ||
		!strings.Contains(err.Error(), "two shards of the unit have code of the kernel one") {
		t.Errorf("error is %v for a kernel in two shards", err)
	}
}
