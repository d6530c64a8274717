package toolchain

import (
	"context"
	"debug/elf"
	"errors"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit/target"
)

// TestBuildsAreDeterministic compiles and links the same source in two checkouts with outputs at two places.
func TestBuildsAreDeterministic(t *testing.T) {
	for _, r := range reals() {
		for _, flags := range [][]string{nil, {"-g"}} {
			t.Run(r.name+strings.Join(flags, ""), func(t *testing.T) {
				if flags != nil && r.name != "cpu" {
					testenv.Long(t)
				}
				tc := r.find(t)
				one, two := t.TempDir(), t.TempDir()
				var object1, library1 []byte
				if flags == nil {
					one = r.built(t)
					object1, library1 = read(t, filepath.Join(one, "unit.o")), read(t, filepath.Join(one, "module.so"))
				} else {
					object1, library1 = r.build(t, tc, tree(t, filepath.Join(one, "src")), filepath.Join(one, "out"), flags...)
				}
				object2, library2 := r.build(t, tc, tree(t, filepath.Join(two, "another, longer")), filepath.Join(two, "staging area", "x"), flags...)
				sameBytes(t, "object", object1, object2)
				sameBytes(t, "library", library1, library2)
				for _, dir := range []string{one, two} {
					if strings.Contains(string(library1), dir) || strings.Contains(string(library2), dir) {
						t.Errorf("the library contains the path %s", dir)
					}
				}
			})
		}
	}
}

// TestDepfileListsAllHeaders checks that the depfiles list every header, also those that only one pass reads.
func TestDepfileListsAllHeaders(t *testing.T) {
	for _, r := range reals() {
		t.Run(r.name, func(t *testing.T) {
			staging := r.built(t)
			listed := string(read(t, filepath.Join(staging, "unit.d")))
			want := []string{r.source, "csrc/include/both.h"}
			switch r.name {
			case "hip": // Clang's depfile is the host's
				listed += string(read(t, filepath.Join(staging, "headers")))
				want = append(want, "csrc/include/device_only.h", "csrc/include/host_only.h", "hip/hip_runtime.h",
					"hip/amd_detail/amd_device_functions.h")
			case "cuda":
				want = append(want, "csrc/include/device_only.h", "csrc/include/host_only.h", "cuda_runtime.h")
			case "cpu":
				want = append(want, "/cstdint", "/cmath", "stdint.h")
			}
			for _, name := range want {
				if !strings.Contains(listed, name) {
					t.Errorf("the depfile does not name %s", name)
				}
			}
		})
	}
}

// TestQuestionsReadNoHeaders checks that hipcc prints its include folders without reading HIP's headers, which would take
// longer than all other queries.
func TestQuestionsReadNoHeaders(t *testing.T) {
	tc := reals()[1].find(t)
	args := queriesFor(target.HIP).verbose
	cmd := exec.Command(tc.Compiler, append(args[:len(args)-1:len(args)-1], "-")...)
	cmd.Env = tc.env
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# \d+ "(/[^"]+)"`).FindAllStringSubmatch(string(out), -1) {
		read[filepath.Base(m[1])] = true
	}
	delete(read, "null")
	if len(read) != 1 || !read["__clang_hip_runtime_wrapper.h"] {
		t.Errorf("read %q, want the wrapper and none of the files that it includes", slices.Sorted(maps.Keys(read)))
	}
}

// TestGlueHeaders checks that the headers that nvcc's depfile omits belong to the toolchain.
func TestGlueHeaders(t *testing.T) {
	tc := reals()[2].find(t)
	for _, name := range []string{"host_runtime.h", "storage_class.h", "ptxas", "cicc", "cudafe++", "fatbinary", "cc1plus", "collect2",
		"as", "ld", "libdevice.10.bc", "libcudart_static.a"} {
		if !slices.ContainsFunc(tc.Files, func(p File) bool { return p.Name == name }) {
			t.Errorf("no part %s", name)
		}
	}
}

// TestLibraryDependencies checks the libraries that a module needs if its code uses only the C library.
func TestLibraryDependencies(t *testing.T) {
	for _, r := range reals() {
		t.Run(r.name, func(t *testing.T) {
			staging := r.built(t)
			f, err := elf.Open(filepath.Join(staging, "module.so"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			checkDynamic(t, r, f)
			checkSymbols(t, f)
		})
	}
}

func checkDynamic(t *testing.T, r real, f *elf.File) {
	t.Helper()
	needed, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range needed {
		switch name, _, _ := strings.Cut(lib, ".so"); name {
		case "libcudart":
			t.Errorf("the library needs %s", lib)
		case "libstdc++": // the static CUDA runtime itself needs it since CUDA 13
			if r.name != "cuda" {
				t.Errorf("the library needs %s", lib)
			}
		case "libamdhip64":
			if r.name != "hip" {
				t.Errorf("the library needs %s", lib)
			}
		}
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH, elf.DT_SONAME} {
		if values, _ := f.DynString(tag); len(values) > 0 {
			t.Errorf("%v is %q", tag, values)
		}
	}
	t.Logf("needs %v", needed)
}

func checkSymbols(t *testing.T, f *elf.File) {
	t.Helper()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	defined, undefined := map[string]bool{}, map[string]bool{}
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			undefined[s.Name] = true
		} else {
			defined[s.Name] = true
		}
		if elf.ST_BIND(s.Info) == elf.STB_LOOS { // STB_GNU_UNIQUE
			t.Errorf("%s is unique in a process: a reloaded library would use the data of the old one", s.Name)
		}
	}
	if !undefined["TVMFFIErrorSetRaisedFromCStr"] {
		t.Error("TVMFFIErrorSetRaisedFromCStr is not undefined")
	}
	if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return strings.Contains(s.Name, "counter") }) {
		t.Error("no data of an inline function: the test tests nothing")
	}
	if !defined["run"] {
		t.Error("run is not exported")
	}
	for name := range defined {
		if strings.HasPrefix(name, "cuda") {
			t.Errorf("exports the CUDA runtime's %s", name)
		}
	}
}

// TestUnsupportedTargets requests architectures that no version of the compiler supports.
func TestUnsupportedTargets(t *testing.T) {
	for i, name := range []string{1: "gfx1999!", 2: "sm_10!"} {
		if name == "" {
			continue
		}
		r := reals()[i]
		t.Run(r.name, func(t *testing.T) {
			_, err := r.finder(t).Find(context.Background(), parse(t, name))
			var unsupported *UnsupportedTargetError
			if !errors.As(err, &unsupported) {
				t.Fatalf("error is %v, want an UnsupportedTargetError", err)
			}
			if unsupported.Target != parse(t, name) || unsupported.Version == "" || unsupported.Reason == "" {
				t.Errorf("the error is %+v", unsupported)
			}
		})
	}
}

// TestLibraryBeforeCompilers adds a library to a folder that the linker searches first.
func TestLibraryBeforeCompilers(t *testing.T) {
	dir, cxx := t.TempDir(), filepath.Join(t.TempDir(), "cxx")
	write(t, cxx, "#!/bin/sh\nexec g++ '-L"+dir+"' \"$@\"\n", 0o755)
	aged(t, dir, cxx)
	f := &Finder{Env: environment("CXX", cxx), Memo: filehash.Open("")}
	find := func() *Toolchain {
		t.Helper()
		tc, err := f.Find(context.Background(), parse(t, "cpu"))
		if err != nil {
			t.Fatal(err)
		}
		return tc
	}
	before := find()
	if !slices.Contains(before.LibraryDirs, dir) {
		t.Errorf("libraries are searched in %q", before.LibraryDirs)
	}
	if again := find(); again.Digest != before.Digest || !slices.Equal(again.LibraryDirs, before.LibraryDirs) {
		t.Error("the second search finds another toolchain")
	}
	write(t, filepath.Join(dir, "libc.so"), "another", 0o644)
	if after := find(); after.Digest == before.Digest {
		t.Error("the toolchain is the same although another libc.so is found first")
	}
}

// TestTargetsDifferInDeviceLibrary checks that identities differ by target: each has its own bitcode.
func TestTargetsDifferInDeviceLibrary(t *testing.T) {
	r := reals()[1]
	f := r.finder(t)
	f.Memo = filehash.Open("")
	files, hosts := map[string][]File{}, map[string]string{}
	for _, name := range []string{"gfx90a", "gfx90a:xnack-", "gfx1030"} {
		tc, err := f.Find(context.Background(), parse(t, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = slices.DeleteFunc(slices.Clone(tc.Files), func(p File) bool { return p.Path == "" })
		hosts[name] = tc.HostDigest
	}
	if slices.Equal(files["gfx90a"], files["gfx1030"]) {
		t.Error("gfx90a and gfx1030 have the same files")
	}
	if !slices.Equal(files["gfx90a"], files["gfx90a:xnack-"]) {
		t.Error("a feature changed the files of the toolchain")
	}
	if hosts["gfx90a"] != hosts["gfx1030"] || hosts["gfx90a"] != hosts["gfx90a:xnack-"] {
		t.Errorf("the host's part differs by target: %v", hosts)
	}
}

// TestArgvDependsOnInputsOnly checks that a command depends on its inputs only, as keys require, and contains all of them.
func TestArgvDependsOnInputsOnly(t *testing.T) {
	for _, v := range []string{"cpu", "gfx90a:xnack-", "sm_90a"} {
		tg := parse(t, v)
		tc := &Toolchain{Vendor: tg.Vendor(), Compiler: "/x/compiler"}
		u := Unit{Source: "csrc/k.hip", Object: "OBJECT", Depfile: "DEPFILE", Include: []string{"csrc/include"}, Flags: []string{"-O3"},
			Target: tg, ID: "id", Root: "ROOT"}
		argv := tc.CompileArgs(u)
		if argv[0] != tc.Compiler || !slices.Equal(argv, tc.CompileArgs(u)) {
			t.Errorf("%s: %q", v, argv)
		}
		for _, word := range []string{"-Icsrc/include", "-O3", "csrc/k.hip", "OBJECT", "DEPFILE"} {
			if !slices.Contains(argv, word) {
				t.Errorf("%s: no %s in %q", v, word, argv)
			}
		}
		for host, want := range map[string]bool{"; gcc version 13.3.0": true, "; clang version 19.1.0": false} {
			with := &Toolchain{Vendor: tg.Vendor(), Compiler: "/x/compiler", VersionLine: "release 12.4" + host}
			if got := slices.Contains(with.CompileArgs(u), "-fno-gnu-unique"); got != (want && tg.Vendor() != target.HIP) {
				t.Errorf("%s with%s: -fno-gnu-unique %v", v, host, got)
			}
		}
		if line := strings.Join(argv, " "); strings.Contains(line, "native") || !strings.Contains(line, strings.TrimPrefix(tg.Arch(), "cpu")) {
			t.Errorf("%s: target in %s", v, line)
		}
	}
}
