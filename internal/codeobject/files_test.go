package codeobject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	host := compile(t, "extern \"C\" const unsigned char aiter_code_objects[];\n"+
		"extern \"C\" __attribute__((visibility(\"default\"))) const void* go() { return aiter_code_objects; }\n",
		"--cuda-host-only", "-nogpulib")
	files := []NamedFile{{"gfx942/a.co", []byte("code")}, {"gfx942/b.co", nil}, {"gfx942/c.co", bytes.Repeat([]byte("x"), 70)}}
	object, err := EmbedFiles(host, files)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"h.o": host, "f.o": object} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lib := filepath.Join(dir, "m.so")
	hipcc(t, "-shared", "-Wl,--gc-sections", filepath.Join(dir, "h.o"), filepath.Join(dir, "f.o"), "-o", lib)
	library := readFile(t, lib)
	got, err := Files(library)
	if err != nil || len(got) != 3 || got[0].Name != "gfx942/a.co" || string(got[0].Data) != "code" || len(got[1].Data) != 0 ||
		!bytes.Equal(got[2].Data, files[2].Data) {
		t.Errorf("the library contains %v, error %v", got, err)
	}
	s, data := sectionOf(t, library, filesSection)
	for _, f := range got {
		if at := bytes.Index(data, f.Data); len(f.Data) > 0 && at%fileAlignment != 0 {
			t.Errorf("%s is at %d", f.Name, at)
		}
	}
	if s.Flags&elf.SHF_WRITE != 0 {
		t.Error("the table can be written")
	}
	if symbols := mustDynamic(t, library); strings.Contains(symbols, filesSymbol) {
		t.Errorf("the library exports or imports %s", filesSymbol)
	}
	if none, err := Files(host); err != nil || none != nil {
		t.Errorf("an object without the table: %v, error %v", none, err)
	}
	for n := range len(data) - 1 {
		if found, err := filesIn(data[:n]); err == nil {
			t.Fatalf("a table of %d of %d bytes: %v", n, len(data), found)
		}
	}
	beyond := bytes.Clone(data)
	binary.LittleEndian.PutUint64(beyond[8:], uint64(len(data)+1))
	var format *FormatError
	if _, err := filesIn(beyond); !errors.As(err, &format) {
		t.Errorf("a name beyond the table: %v", err)
	}
	if _, err := Extract(bytes.NewReader(library)); !errors.As(err, &format) || !strings.Contains(err.Error(), "gfx942/a.co") {
		t.Errorf("extracted a text as a code object: %v", err)
	}
	if _, err := ArchOf(library); !errors.As(err, &format) {
		t.Errorf("the architecture of a library for the host: %v", err)
	}
	if _, err := EmbedFiles(library, files); !errors.As(err, &format) {
		t.Errorf("embedded for a library: %v", err)
	}
	if _, err := EmbedFiles([]byte("text"), files); !errors.As(err, &format) {
		t.Errorf("embedded for a text: %v", err)
	}
}

func mustDynamic(t *testing.T, library []byte) string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// The architecture in the header of real code objects is that of their metadata.
func TestArchOf(t *testing.T) {
	known := map[string]bool{}
	for _, arch := range machines() {
		known[arch] = true
	}
	if len(known) != len(machines()) {
		t.Error("two numbers of one architecture")
	}
	for _, arch := range []string{"gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"} {
		flags := []string{"--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib"}
		if arch != "gfx90a" { // the architecture of compile
			flags = append(flags, "--no-offload-arch=gfx90a", "--offload-arch="+arch)
		}
		code := compile(t, "extern \"C\" __attribute__((global)) void k() {}\n", flags...)
		got, err := ArchOf(code)
		want, errTarget := TargetOf(bytes.NewReader(code))
		if err != nil || errTarget != nil || got != arch || want != arch {
			t.Errorf("%s: got %q and metadata %q, errors %v, %v", arch, got, want, err, errTarget)
		}
	}
	var format *FormatError
	for _, data := range [][]byte{nil, []byte("version https://git-lfs"), compile(t, "int a;\n", "--cuda-host-only", "-nogpulib")} {
		if _, err := ArchOf(data); !errors.As(err, &format) {
			t.Errorf("%.20q: %v", data, err)
		}
	}
}
