package codeobject

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

func TestBundleAndUnbundle(t *testing.T) {
	for _, o := range []Object{{"gfx942", []byte("code")}, {"gfx90a:sramecc+:xnack-", bytes.Repeat([]byte("x"), 5000)}} {
		b := Bundle(o)
		got, err := Unbundle(append(slices.Clone(b), make([]byte, 4096)...))
		if err != nil || len(got) != 1 || got[0].Target != o.Target || !bytes.Equal(got[0].ELF, o.ELF) {
			t.Errorf("%s: got %v, error %v", o.Target, got, err)
		}
		if !bytes.Equal(b[pageSize:], o.ELF) {
			t.Errorf("%s: the code is not on the second page", o.Target)
		}
	}
}

const kernelSource = `#include <aiter/hip.h>
__global__ void k(float* p) { p[threadIdx.x] = 1; }
extern "C" __attribute__((visibility("default"))) void go(float* p) { k<<<1, 64>>>(p); }
`

// compile makes the object of one pass of source with the real hipcc.
func compile(t *testing.T, source string, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "k.hip"), filepath.Join(dir, "k.o")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	hipcc(t, append([]string{"--offload-arch=gfx90a", "-O1", "-nogpuinc", "-fPIC", "-I" + filepath.Join(testenv.Root(t), "csrc", "include"),
		"-cuid=abc", "-c", in, "-o", out}, flags...)...)
	return readFile(t, out)
}

func hipcc(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(testenv.Tool(t, "hipcc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("hipcc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sectionOf(t *testing.T, object []byte, name string) (*elf.Section, []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Section(name)
	if s == nil {
		t.Fatalf("no section %s", name)
	}
	data, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	return s, data
}

// The library of the two passes has the section that one compile of the whole unit gives: same content, alignment and
// flags.
func TestEmbeddedCodeIsIdenticalToCompilers(t *testing.T) {
	host := compile(t, kernelSource, "--cuda-host-only", "-nogpulib")
	code := compile(t, kernelSource, "--cuda-device-only", "--no-gpu-bundle-output")
	whole := compile(t, kernelSource)

	object, err := Embed(host, Object{"gfx90a", code})
	if err != nil {
		t.Fatal(err)
	}
	want, wantData := sectionOf(t, whole, bundleSection)
	got, gotData := sectionOf(t, object, bundleSection)
	if !bytes.Equal(gotData, wantData) {
		t.Errorf("the section has %d bytes, the compiler's own %d, and they differ", len(gotData), len(wantData))
	}
	if got.Addralign != want.Addralign || got.Flags != want.Flags || got.Type != want.Type {
		t.Errorf("the section is %+v, the compiler's own %+v", got.SectionHeader, want.SectionHeader)
	}
	again, err := Embed(host, Object{"gfx90a", code})
	if err != nil || !bytes.Equal(again, object) {
		t.Errorf("embedded twice: outputs differ, error %v", err)
	}
	checkLibrary(t, host, object, wantData)
}

// checkLibrary links the objects and checks that the registration points to the code.
func checkLibrary(t *testing.T, host, object, bundle []byte) {
	t.Helper()
	dir := t.TempDir()
	h, o, lib := filepath.Join(dir, "h.o"), filepath.Join(dir, "o.o"), filepath.Join(dir, "m.so")
	for path, data := range map[string][]byte{h: host, o: object} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hipcc(t, "-shared", h, o, "-o", lib)
	library := readFile(t, lib)
	s, data := sectionOf(t, library, bundleSection)
	if s.Addr%pageSize != 0 || !bytes.Equal(data, bundle) {
		t.Errorf("in the library the section is at %#x with %d bytes", s.Addr, len(data))
	}
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		t.Fatal(err)
	}
	if !pointsTo(t, f, s.Addr) {
		t.Error("the registration does not point to the section")
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_GNU_STACK && p.Flags&elf.PF_X != 0 {
			t.Error("the library needs an executable stack")
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, sym := range symbols {
		if strings.HasPrefix(sym.Name, fatbinPrefix) {
			t.Errorf("the library exports or imports %s", sym.Name)
		}
	}
}

// pointsTo reports whether a relocation puts addr into the struct for __hipRegisterFatBinary.
func pointsTo(t *testing.T, f *elf.File, addr uint64) bool {
	t.Helper()
	segment := f.Section(".hipFatBinSegment")
	if segment == nil {
		t.Fatal("no section .hipFatBinSegment")
	}
	rela, err := f.Section(".rela.dyn").Data()
	if err != nil {
		t.Fatal(err)
	}
	for ; len(rela) >= 24; rela = rela[24:] {
		at, addend := f.ByteOrder.Uint64(rela), f.ByteOrder.Uint64(rela[16:])
		if at == segment.Addr+8 && addend == addr {
			return true
		}
	}
	return false
}

func TestUnitWithoutKernels(t *testing.T) {
	host := compile(t, "int f() { return 1; }\n", "--cuda-host-only", "-nogpulib")
	object, err := Embed(host, Object{"gfx90a", []byte("code")})
	if err != nil {
		t.Fatal(err)
	}
	if _, data := sectionOf(t, object, bundleSection); len(data) != 0 {
		t.Errorf("%d bytes of device code for a unit without kernels", len(data))
	}
}

func TestInvalidHostObjects(t *testing.T) {
	whole := compile(t, kernelSource)
	for name, object := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "whole": whole, "device code": compile(t, kernelSource, "--cuda-device-only",
			"--no-gpu-bundle-output"),
		"cut off": whole[:len(whole)/2],
	} {
		var format *FormatError
		if _, err := Embed(object, Object{"gfx90a", nil}); !errors.As(err, &format) {
			t.Errorf("%s: error is %v, want a FormatError", name, err)
		}
	}
}

func FuzzEmbed(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"), []byte("code"))
	empty := relocatable{machine: elf.EM_X86_64}.bytes()
	f.Add(empty, []byte("code"))
	f.Add(relocatable{machine: elf.EM_X86_64, symbol: "__hip_fatbin_1", data: []byte("x")}.bytes(), []byte{})
	f.Fuzz(func(t *testing.T, host, code []byte) {
		object, err := Embed(host, Object{"gfx942", code})
		if err != nil {
			return
		}
		if _, err := elf.NewFile(bytes.NewReader(object)); err != nil {
			t.Errorf("made an object that cannot be read: %v", err)
		}
	})
}
