package ffi_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// passOf compiles testdata/hip_names.hip and returns hipcc's output.
func passOf(t *testing.T, flags ...string) []byte {
	t.Helper()
	for _, file := range []string{filepath.Join("testdata", "hip_names.hip"), filepath.Join(testenv.Root(t), "csrc", "include", "aiter", "hip.h")} {
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
		flags := []string{"--offload-arch=" + arch, "--cuda-device-only"}
		own := passOf(t, append(flags, "-nogpuinc", "-Wall", "-Wextra")...)
		if !bytes.Equal(own, passOf(t, flags...)) {
			t.Errorf("%s: the code differs from that with HIP's headers", arch)
		}
	}
	host := []string{"--offload-arch=gfx90a", "--cuda-host-only"}
	if !bytes.Equal(passOf(t, append(host, "-nogpuinc", "-Wall", "-Wextra")...), passOf(t, host...)) {
		t.Error("the host's object differs from that with HIP's headers")
	}
	passOf(t, "--offload-arch=gfx90a", "--cuda-device-only", "-nogpuinc", "-DDOWN", "-Wall", "-Wextra")
}
