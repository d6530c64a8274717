package toolchain

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit/target"
)

// environment is a Finder.Env with the process's PATH, HOME and TMPDIR and the given pairs of name and value.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		switch name {
		case "PATH", "HOME", "TMPDIR":
			return os.Getenv(name)
		}
		return ""
	}
}

func parse(t *testing.T, name string) target.Target {
	t.Helper()
	tg, err := target.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

// real is a compiler of this machine and a target that all its versions can build.
type real struct {
	name, target, variable, source string
	finder                         func(t *testing.T) *Finder
}

// queried remembers the answers of the compilers of this machine. A test whose subject is the search has no Memo.
var queried = filehash.Open("")

func reals() []real {
	named := func(variable, name string) func(t *testing.T) *Finder {
		return func(t *testing.T) *Finder {
			return &Finder{Env: environment(variable, testenv.Tool(t, name)), Memo: queried}
		}
	}
	return []real{
		{"cpu", "cpu", "CXX", "csrc/k.cpp", func(*testing.T) *Finder { return &Finder{Env: environment(), Memo: queried} }},
		{"hip", "gfx90a", "HIPCC", "csrc/k.hip", named("HIPCC", "hipcc")},
		{"cuda", "sm_90", "NVCC", "csrc/k.hip", named("NVCC", "nvcc")},
	}
}

func (r real) find(t *testing.T) *Toolchain {
	t.Helper()
	tc, err := r.finder(t).Find(context.Background(), parse(t, r.target))
	if err != nil {
		t.Fatal(err)
	}
	return tc
}

// The sources use features that can make objects differ: internal linkage, an anonymous namespace, __FILE__, assertions of
// headers. The static data of an inline function is a feature by which libraries can share data.
const (
	kernelSource = `
#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include <hip/hip_runtime.h>
#endif
#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)
#include "device_only.h"
#else
#include "host_only.h"
#endif
#include "both.h"
static __device__ float scale = 1.0f;
namespace {
template <typename T> __global__ void kernel(T* out, const T* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = twice(in[i]) * scale;
}
}
extern "C" int TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);
extern "C" __attribute__((visibility("default"))) int run(float* out, const float* in, int n) {
  if (n < 0) return TVMFFIErrorSetRaisedFromCStr("ValueError", __FILE__ " " BOTH);
  kernel<float><<<(n + 255) / 256, 256>>>(out, in, n);
  return counter<int>()++;
}
`
	hostSource = `
#include <cstdint>
#include <cmath>
#include "both.h"
namespace { float scale = 1.0f; float internal(float x) { return std::exp(x) * scale; } }
extern "C" int TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);
extern "C" int run(float* out, const float* in, int64_t n) {
  if (n < 0) return TVMFFIErrorSetRaisedFromCStr("ValueError", __FILE__ " " BOTH " " __DATE__);
  for (int64_t i = 0; i < n; i++) out[i] = internal(twice(in[i]));
  return counter<int>()++;
}
`
	bothHeader = `
#if !defined(__HIPCC__) && !defined(__CUDACC__)
#define __host__
#define __device__
#endif
static inline __host__ __device__ float twice(float x) { return x + x; }
template <typename T> T& counter() { static T calls; return calls; }
#define BOTH __FILE__
`
)

// tree writes the test's sources below dir.
func tree(t *testing.T, dir string) string {
	t.Helper()
	for name, text := range map[string]string{
		"csrc/k.hip": kernelSource, "csrc/k.cpp": hostSource,
		"csrc/include/both.h": bothHeader, "csrc/include/device_only.h": "\n", "csrc/include/host_only.h": "\n",
	} {
		write(t, filepath.Join(dir, name), text, 0o644)
	}
	return dir
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// run executes argv like a build.
func run(t *testing.T, tc *Toolchain, dir string, argv []string, env ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(tc.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// build compiles and links r's source in root, with the outputs in staging.
func (r real) build(t *testing.T, tc *Toolchain, root, staging string, flags ...string) (object, library []byte) {
	t.Helper()
	u := Unit{
		Source: r.source, Object: filepath.Join(staging, "unit.o"), Depfile: filepath.Join(staging, "unit.d"),
		Include: []string{"csrc/include"}, Flags: append([]string{"-O3", "-std=c++17"}, flags...),
		Target: parse(t, r.target), ID: "0123456789abcdef", Root: root,
	}
	if err := os.MkdirAll(staging, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, tc, root, tc.CompileArgs(u), "TMPDIR="+staging, "CC_PRINT_HEADERS=1", "CC_PRINT_HEADERS_FILE="+filepath.Join(staging, "headers"))
	l := Link{Objects: []string{u.Object}, Output: filepath.Join(staging, "module.so"), Target: u.Target, Root: root}
	run(t, tc, root, tc.LinkArgs(l), "TMPDIR="+staging)
	return read(t, u.Object), read(t, l.Output)
}

// builtFolders has the folder of each real's build without flags, by name. TestMain removes the folders.
var builtFolders = map[string]string{}

// built returns a folder with the results of a build without flags, which several tests read: the depfile unit.d, the headers
// of Clang, unit.o and module.so.
func (r real) built(t *testing.T) string {
	t.Helper()
	if dir := builtFolders[r.name]; dir != "" {
		return filepath.Join(dir, "out")
	}
	tc := r.find(t)
	dir, err := os.MkdirTemp("", "aiter-built-")
	if err != nil {
		t.Fatal(err)
	}
	r.build(t, tc, tree(t, filepath.Join(dir, "src")), filepath.Join(dir, "out"))
	builtFolders[r.name] = dir
	return filepath.Join(dir, "out")
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range builtFolders {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func sameBytes(t *testing.T, what string, a, b []byte) {
	t.Helper()
	if !bytes.Equal(a, b) {
		at := firstDifference(a, b)
		t.Errorf("%s: two builds differ, %d and %d bytes, first at %d: %q and %q", what, len(a), len(b), at,
			a[max(0, at-40):min(len(a), at+40)], b[max(0, at-40):min(len(b), at+40)])
	}
}

// aged makes files and folders so old that a Memo remembers them.
func aged(t *testing.T, paths ...string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	for _, p := range paths {
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
	}
}
