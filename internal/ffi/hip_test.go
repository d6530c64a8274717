package ffi_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// passOf compiles testdata/hip_names.hip and returns hipcc's output.
func passOf(t *testing.T, flags ...string) []byte {
	t.Helper()
	for _, file := range []string{filepath.Join("testdata", "hip_names.hip"), filepath.Join(testenv.Root(t), "csrc", "include",
		"aiter", "hip.h")} {
		if _, err := os.ReadFile(file); err != nil { // also tells `go test` what a cached result depends on
			t.Fatal(err)
		}
	}
	object := filepath.Join(t.TempDir(), "k.o")
	args := append([]string{"-O3", "-std=c++17", "-fvisibility=hidden", "-cuid=1", "-I" + filepath.Join(testenv.Root(t), "csrc", "include"),
		"-c", filepath.Join("testdata", "hip_names.hip"), "-o", object}, flags...)
	if out, err := exec.Command(testenv.Tool(t, "hipcc"), args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("hipcc %q: %v\n%s", args, err, out)
	}
	data, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// aiter/hip.h is equivalent to HIP's own headers: the same code for waves of 64 and of 32, and for
// the host.
func TestHIPWithoutItsHeaders(t *testing.T) {
	for _, arch := range []string{"gfx90a", "gfx1030"} {
		t.Run(arch, func(t *testing.T) {
			if arch != "gfx90a" {
				testenv.Long(t)
			}
			flags := []string{"--offload-arch=" + arch, "--cuda-device-only"}
			own := passOf(t, append(flags, "-nogpuinc", "-Wall", "-Wextra")...)
			if !bytes.Equal(own, passOf(t, flags...)) {
				t.Error("the code differs from that with HIP's headers")
			}
		})
	}
	host := []string{"--offload-arch=gfx90a", "--cuda-host-only"}
	if !bytes.Equal(passOf(t, append(host, "-nogpuinc", "-Wall", "-Wextra")...), passOf(t, host...)) {
		t.Error("the host's object differs from that with HIP's headers")
	}
	passOf(t, "--offload-arch=gfx90a", "--cuda-device-only", "-nogpuinc", "-DDOWN", "-Wall", "-Wextra")
}

// aiter/cuda_device.h is equivalent to CUDA's own headers.
func TestCUDAWithoutItsHeaders(t *testing.T) {
	compile := func(flags ...string) []byte {
		header := filepath.Join(testenv.Root(t), "csrc", "include", "aiter", "cuda_device.h")
		if _, err := os.ReadFile(header); err != nil { // also tells `go test` what a cached result depends on
			t.Fatal(err)
		}
		output, failure := compileGPU(t, "nvcc", "cuda_names.cu", append(flags, "-cubin", "-arch=sm_90a")...)
		if failure != "" {
			t.Fatal(failure)
		}
		data, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if !bytes.Equal(compile("-D__CUDA_RUNTIME_H__"), compile()) {
		t.Error("the code differs from that with CUDA's headers")
	}
}

// Each CUDA unit of a library registers the kernels of its own shards.
func TestRegistrationOfUnits(t *testing.T) {
	include, dir := filepath.Join(testenv.Root(t), "csrc", "include"), t.TempDir()
	if _, err := os.ReadFile(filepath.Join(include, "aiter", "cuda_host.h")); err != nil { // as above
		t.Fatal(err)
	}
	var objects []string
	for name, flags := range map[string][]string{
		"one":   {"-DKERNEL=one", "-DAITER_DEVICE_CODE=code_one", "register_unit.cpp"},
		"two":   {"-DKERNEL=two", "-DAITER_DEVICE_CODE=code_two", "-DAITER_SHARDS=2", "register_unit.cpp"},
		"table": {"register_table.cpp"},
	} {
		last := len(flags) - 1
		flags[last] = filepath.Join("testdata", flags[last])
		object := filepath.Join(dir, name+".o")
		args := append([]string{"-x", "c++", "-std=c++17", "-O0", "-I" + include, "-c", "-o", object}, flags...)
		if out, err := exec.Command(testenv.Tool(t, "nvcc"), args...).CombinedOutput(); err != nil {
			t.Fatalf("nvcc %q: %v\n%s", args, err, out)
		}
		objects = append(objects, object)
	}
	slices.Sort(objects)
	program := filepath.Join(dir, "program")
	if out, err := exec.Command("c++", append(objects, "-o", program)...).CombinedOutput(); err != nil {
		t.Fatalf("link: %v\n%s", err, out)
	}
	const want = "a: one\nb: two\nc:\nend of b\nend of c\nend of a\n"
	if out, err := exec.Command(program).CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("error %v, output:\n%swant:\n%s", err, out, want)
	}
}

// A launch returns its own error. It neither returns nor clears an error that another library has left.
func TestLaunchErrors(t *testing.T) {
	include := filepath.Join(testenv.Root(t), "csrc", "include")
	source, program := filepath.Join("testdata", "launch_error.hip"), filepath.Join(t.TempDir(), "launch_error")
	for _, file := range []string{source, filepath.Join(include, "aiter", "gpu", "launch.h")} {
		if _, err := os.ReadFile(file); err != nil { // also tells `go test` what a cached result depends on
			t.Fatal(err)
		}
	}
	args := []string{"-std=c++17", "-nogpuinc", "-nogpulib", "--cuda-host-only", "--offload-arch=gfx90a", "-I" + include, "-c",
		source, "-o", program + ".o"}
	if out, err := exec.Command(testenv.Tool(t, "hipcc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("hipcc %q: %v\n%s", args, err, out)
	}
	if out, err := exec.Command("c++", program+".o", "-o", program).CombinedOutput(); err != nil {
		t.Fatalf("link: %v\n%s", err, out)
	}
	out, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const want = `0 0: ok, last error 0
0 98: ok, last error 98
98 0: launch of operator failed: error 98, last error 0
98 719: launch of operator failed: error 98, last error 0
`
	if string(out) != want {
		t.Errorf("got:\n%swant:\n%s", out, want)
	}
}

// compileGPU runs a compiler on a file of testdata and returns the path of its output, and what it printed if it failed.
func compileGPU(t *testing.T, tool, file string, flags ...string) (output, failure string) {
	t.Helper()
	source := filepath.Join("testdata", file)
	headers, err := filepath.Glob(filepath.Join(testenv.Root(t), "csrc", "include", "aiter", "gpu", "*.h"))
	if err != nil {
		t.Fatal(err)
	}
	for _, read := range append(headers, source) {
		if _, err := os.ReadFile(read); err != nil { // also tells `go test` what a cached result depends on
			t.Fatal(err)
		}
	}
	output = filepath.Join(t.TempDir(), "output")
	args := append([]string{"-std=c++17", "-O3", "-I" + filepath.Join(testenv.Root(t), "csrc", "include"), source, "-o", output}, flags...)
	if text, err := exec.Command(testenv.Tool(t, tool), args...).CombinedOutput(); err != nil {
		return output, string(text)
	}
	return output, ""
}

// reload_kernarg reads the kernel's arguments from memory, so it takes a kernel's parameter and nothing else.
func TestReloadOfACopy(t *testing.T) {
	flags := []string{"-nogpuinc", "-nogpulib", "--offload-arch=gfx90a", "--cuda-device-only", "-c"}
	if _, failure := compileGPU(t, "hipcc", "reload_kernarg.hip", flags...); failure != "" {
		t.Errorf("a parameter: %s", failure)
	}
	if _, failure := compileGPU(t, "hipcc", "reload_kernarg.hip", append(flags, "-DCOPY")...); !strings.Contains(failure,
		"no matching function for call to 'reload_kernarg'") {
		t.Errorf("a copy: want an error, got %q", failure)
	}
}

// A launch takes any number of arguments, one for each parameter of the kernel.
func TestLaunchArguments(t *testing.T) {
	flags := []string{"-nogpuinc", "-nogpulib", "--offload-arch=gfx90a", "--cuda-host-only", "-c"}
	if _, failure := compileGPU(t, "hipcc", "launch_arguments.hip", flags...); failure != "" {
		t.Errorf("33 arguments: %s", failure)
	}
	if _, failure := compileGPU(t, "hipcc", "launch_arguments.hip", append(flags, "-DFEWER")...); !strings.Contains(failure,
		"no matching function for call to 'launch'") {
		t.Errorf("one argument less: want an error, got %q", failure)
	}
}

// A kernel may declare the shared memory that each GPU gives a block, and no more.
func TestSharedMemoryLimit(t *testing.T) {
	for tool, flags := range map[string][]string{
		"hipcc": {"-nogpuinc", "-nogpulib", "--offload-arch=gfx90a", "--cuda-device-only", "-c"},
		"nvcc":  {"-x", "cu", "-arch=sm_90", "-ptx"},
	} {
		t.Run(tool, func(t *testing.T) {
			if _, failure := compileGPU(t, tool, "shared_memory.hip", append(flags, "-DBYTES=49152")...); failure != "" {
				t.Errorf("48 KiB: %s", failure)
			}
			const want = "too much shared memory"
			if _, failure := compileGPU(t, tool, "shared_memory.hip", append(flags, "-DBYTES=49168")...); !strings.Contains(failure, want) {
				t.Errorf("16 bytes more: want %q, got %q", want, failure)
			}
		})
	}
}

// No compiler may move a read-only load in front of the wait for the previous grid, which may have written its memory.
func TestReadOnlyLoadBehindTheWait(t *testing.T) {
	output, failure := compileGPU(t, "nvcc", "readonly_load.cu", "-arch=sm_90", "-ptx")
	if failure != "" {
		t.Fatal(failure)
	}
	text, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	wait, load := bytes.Index(text, []byte("griddepcontrol.wait")), bytes.Index(text, []byte("ld.global.nc"))
	if wait < 0 || load < wait {
		t.Errorf("the wait is at %d, the load at %d of\n%s", wait, load, text)
	}
}

// Modules of one process share the memory pool of a device. Without the support library, as in Python, each has its own. A
// pool is made in the relaxed capture mode; then the thread has its previous mode again.
func TestModulesShareMemoryPool(t *testing.T) {
	root, dir := testenv.Root(t), t.TempDir()
	source := filepath.Join("testdata", "workspace_pool.hip")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	include := filepath.Join(root, "csrc", "include")
	for _, file := range []string{source, filepath.Join(include, "aiter", "workspace.h")} {
		if _, err := os.ReadFile(file); err != nil { // also tells `go test` what a cached result depends on
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	run(testenv.Tool(t, "hipcc"), "-std=c++17", "-nogpuinc", "-nogpulib", "-fPIC", "-fvisibility=hidden", "--cuda-host-only",
		"--offload-arch=gfx90a",
		"-I"+include, "-c", source, "-o", in("module.o"))
	run("c++", "-shared", in("module.o"), "-o", in("a.so"))
	run("c++", "-shared", in("module.o"), "-o", in("b.so"))
	run("c++", "-shared", "-fPIC", "-I"+include, filepath.Join(root, "csrc", "support", "aiter_ffi.cpp"), "-o", in("support.so"))
	run("c++", "-x", "c++", "-DPROGRAM", source, "-rdynamic", "-o", in("program"))
	const failed = "device 64: device 64: expected a number below 64\n"
	for _, test := range []struct{ support, want string }{
		{in("support.so"), failed + failed + "3 pools, capture mode 0\n"},
		{"", failed + failed + "6 pools, capture mode 0\n"},
	} {
		out, err := exec.Command(in("program"), test.support, in("a.so"), in("b.so")).CombinedOutput()
		if err != nil || string(out) != test.want {
			t.Errorf("support library %q: %v, got:\n%swant:\n%s", test.support, err, out, test.want)
		}
	}
}
