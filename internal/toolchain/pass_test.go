package toolchain

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/jit/target"
)

func TestPasses(t *testing.T) {
	whole, apart := []Pass{Whole}, []Pass{Host, Device}
	for _, c := range []struct {
		vendor  target.Vendor
		version string
		flags   []string
		want    []Pass
	}{
		{target.HIP, "HIP version: 6.4.43484-9999 Debian clang version 21.1.8 (13)", []string{"-O3", "-nogpuinc"}, apart},
		{target.HIP, "HIP version: 6.4 AMD clang version 19.0.0git (https://x roc-6.4.0)", nil, apart},
		{target.HIP, "HIP version: 6.2 AMD clang version 18.0.0git", nil, whole},
		{target.HIP, "HIP version: 5.2.21153-0 Debian clang version 15.0.6", nil, whole},
		{target.HIP, "something else", nil, whole},
		{target.HIP, "clang version 99999999999999999999.1", nil, whole},
		{target.HIP, "clang version 21.1.8", []string{"-O3", "-fgpu-rdc"}, whole},
		{target.HIP, "clang version 21.1.8", []string{"--offload-arch=gfx1030"}, whole},
		{target.HIP, "clang version 21.1.8", []string{"--offload-compress"}, whole},
		{target.CPU, "Debian clang version 21.1.8", nil, whole},
		{target.CUDA, "nvcc 12.4", nil, whole},
		{target.CUDA, "nvcc 12.4", []string{"-O2", "-DAITER_TWO_PASSES"}, apart},
		{target.CUDA, "nvcc 12.4", []string{"-DAITER_TWO_PASSES", "-rdc=true"}, whole},
		{target.CUDA, "nvcc 12.4", []string{"-DAITER_TWO_PASSES", "-DAITER_SHARDS=2"}, []Pass{Host, "device 1/2", "device 2/2"}},
		{target.CUDA, "nvcc 12.4", []string{"-DAITER_TWO_PASSES", "-DAITER_SHARDS=1"}, apart},
		{target.CUDA, "nvcc 12.4", []string{"-DAITER_TWO_PASSES", "-DAITER_SHARDS=x"}, apart},
		{target.CUDA, "nvcc 12.4", []string{"-DAITER_SHARDS=2"}, whole},
		{target.HIP, "clang version 21.1.8", []string{"-DAITER_SHARDS=2"}, apart},
		{target.CPU, "g++ 12", []string{"-DAITER_TWO_PASSES"}, whole},
	} {
		tc := &Toolchain{Vendor: c.vendor, VersionLine: c.version}
		if got := tc.Passes(c.flags); !slices.Equal(got, c.want) {
			t.Errorf("%s %q %q: passes %q, want %q", c.vendor, c.version, c.flags, got, c.want)
		}
	}
}

func TestShardOfPass(t *testing.T) {
	for pass, want := range map[Pass][2]int{Whole: {}, Host: {}, Device: {1, 1}, "device 2/7": {2, 7}} {
		k, n := pass.Shard()
		if [2]int{k, n} != want || pass.MakesDeviceCode() != (n > 0) {
			t.Errorf("%q: shard %d of %d, device code %t; want %d", pass, k, n, pass.MakesDeviceCode(), want)
		}
	}
}

// TestHostPassDependsOnNoTarget checks that all targets can share the host pass: command, identity and object are equal.
func TestHostPassDependsOnNoTarget(t *testing.T) {
	r := reals()[1]
	f := r.finder(t)
	var objects [][]byte
	var argvs [][]string
	var digests []string
	for _, name := range []string{"gfx90a", "gfx1030"} {
		tg := parse(t, name)
		tc, err := f.Find(t.Context(), tg)
		if err != nil {
			t.Fatal(err)
		}
		if len(tc.Passes(nil)) == 1 {
			t.Skipf("%s compiles units whole", tc.VersionLine)
		}
		root, staging := tree(t, filepath.Join(t.TempDir(), "src")), t.TempDir()
		u := Unit{Source: r.source, Object: filepath.Join(staging, "unit.o"), Depfile: filepath.Join(staging, "unit.d"),
			Include: []string{"csrc/include"}, Flags: []string{"-O1"}, Target: tg, Pass: Host, ID: "0123456789abcdef", Root: root}
		run(t, tc, root, tc.CompileArgs(u), "TMPDIR="+staging)
		objects = append(objects, read(t, u.Object))
		u.Object, u.Depfile, u.Root = "OBJECT", "DEPFILE", "ROOT"
		argvs, digests = append(argvs, tc.CompileArgs(u)), append(digests, tc.Identity(Host))

		// The object is identical to one for an explicit target: the architecture in the command does not matter.
		u.Object, u.Depfile, u.Root = filepath.Join(staging, "chosen.o"), filepath.Join(staging, "chosen.d"), root
		argv := tc.CompileArgs(u)
		argv[slices.Index(argv, "--offload-arch="+anyArch)] = "--offload-arch=gfx1100"
		run(t, tc, root, argv, "TMPDIR="+staging)
		sameBytes(t, "the architecture that a host pass names", objects[0], read(t, u.Object))
		if tc.Identity(Device) != tc.Digest || tc.Identity(Whole) != tc.Digest || tc.Identity(Host) == tc.Digest {
			t.Errorf("%s: identities are %s, %s, %s", name, tc.Identity(Whole), tc.Identity(Host), tc.Identity(Device))
		}
	}
	if !bytes.Equal(objects[0], objects[1]) || !slices.Equal(argvs[0], argvs[1]) || digests[0] != digests[1] {
		t.Errorf("two targets: same objects %t, commands %q, identities %q", bytes.Equal(objects[0], objects[1]), argvs, digests)
	}
}

// TestDevicePassListsHeaders checks the depfile, which the driver itself does not write.
func TestDevicePassListsHeaders(t *testing.T) {
	r := reals()[1]
	tc := r.find(t)
	if len(tc.Passes(nil)) == 1 {
		t.Skipf("%s compiles units whole", tc.VersionLine)
	}
	root, staging := tree(t, filepath.Join(t.TempDir(), "src")), t.TempDir()
	u := Unit{Source: r.source, Object: filepath.Join(staging, "unit.o"), Depfile: filepath.Join(staging, "unit.d"),
		Include: []string{"csrc/include"}, Flags: []string{"-O1"}, Target: parse(t, r.target), Pass: Device, ID: "0123456789abcdef", Root: root}
	run(t, tc, root, tc.CompileArgs(u), "TMPDIR="+staging)
	deps := read(t, u.Depfile)
	for _, want := range []string{"csrc/k.hip", "csrc/include/device_only.h", "csrc/include/both.h", "hip/hip_runtime.h",
		"__clang_hip_runtime_wrapper.h", "stdlib.h"} {
		if !bytes.Contains(deps, []byte(want)) {
			t.Errorf("the depfile does not name %s", want)
		}
	}
	if bytes.Contains(deps, []byte("host_only.h")) {
		t.Error("the depfile names a file that only the host pass reads")
	}
	if code := read(t, u.Object); !bytes.HasPrefix(code, []byte("\x7fELF")) {
		t.Errorf("no code object but %q", code[:min(24, len(code))])
	}
}
