//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const oneUnit = `
[module.module_demo]
include = ["include", "late"]
flags = { common = ["-O1"] }
[[module.module_demo.source]]
path = "src/a.cpp"
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
`

// oneUnitFixture returns a fixture whose module has one unit, so that one failure is one compile.
func oneUnitFixture(t *testing.T) *fixture {
	b := newFixture(t)
	b.write("config.toml", oneUnit)
	b.write("late/keep.h", "")
	return b
}

// failed builds and checks for a CompileError. It returns whether the cache supplied the error, and
// the number of compiler runs.
func (b *fixture) failed(change ...func(*jit.Options)) (e *jit.CompileError, remembered bool, compiles int) {
	b.t.Helper()
	b.compiles()
	if err := b.buildErr(change...); !errors.As(err, &e) {
		b.t.Fatalf("got %v, want a CompileError", err)
	}
	return e, !e.Remembered.IsZero(), b.compiles()
}

// wantRemembered checks that the failure is reported again without a compile.
func (b *fixture) wantRemembered(first *jit.CompileError) {
	b.t.Helper()
	again, remembered, n := b.failed()
	if !remembered || n != 0 {
		b.t.Fatalf("second build: remembered %v, %d compiles", remembered, n)
	}
	if again.Output != first.Output || again.Reason != first.Reason {
		b.t.Errorf("remembered %q (%s), want %q (%s)", again.Output, again.Reason, first.Output, first.Reason)
	}
	if since := time.Since(again.Remembered); since < 0 || since > time.Hour || !strings.Contains(again.Error(), "AITER_REBUILD=1") {
		b.t.Errorf("the error lacks the time of the failure or the way to retry: %v", again)
	}
}

func TestFailuresOfTheInputsAreRemembered(t *testing.T) {
	testenv.Long(t)
	broken := []struct{ name, file, text string }{
		{"language", "src/a.cpp", "#include \"both.h\"\n#include <stdint.h>\nint x = ;\n"},
		{"language in a header", "include/only_a.h", "int y = ;\n"},
		{"error directive", "include/only_a.h", "#error broken\n"},
		{"missing header", "src/a.cpp", "#include \"both.h\"\n#include \"sub/missing.h\"\n"},
		{"missing system header", "src/a.cpp", "#include \"both.h\"\n#include <sub/missing.h>\n"},
		{"missing header named by a macro", "src/a.cpp", "#define WHERE \"missing.h\"\n#include \"both.h\"\n#include WHERE\n"},
		{"missing header in the parent folder", "src/a.cpp", "#include \"../include/both.h\"\n#include \"../missing.h\"\n"},
	}
	for _, tt := range broken {
		t.Run(tt.name, func(t *testing.T) {
			b := oneUnitFixture(t)
			b.write(tt.file, tt.text)
			first, remembered, n := b.failed()
			if remembered || n == 0 {
				t.Fatalf("first build: remembered %v, %d compiles", remembered, n)
			}
			b.wantRemembered(first)
			b.write("include/unused.h", "#define ANOTHER\n")
			b.wantRemembered(first)
			b.noStaging()
			if _, remembered, n := b.failed(func(o *jit.Options) { o.Force = true }); remembered || n == 0 {
				t.Errorf("forced build: remembered %v, %d compiles", remembered, n)
			}
			b.write(tt.file, testFiles[tt.file])
			b.build()
		})
	}
}

// TestMissingAbsoluteHeader creates a missing header that the source includes by its absolute path.
func TestMissingAbsoluteHeader(t *testing.T) {
	b := oneUnitFixture(t)
	missing := filepath.Join(t.TempDir(), "missing.h")
	b.write("src/a.cpp", "#include \"both.h\"\n#include \""+missing+"\"\n"+demoOp)
	first, _, _ := b.failed()
	b.wantRemembered(first)
	if err := os.WriteFile(missing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.build()
}

// TestEachChangeRetries changes one input after a failure and checks that the build compiles again.
func TestEachChangeRetries(t *testing.T) {
	missing := "#include \"both.h\"\n#include \"sub/missing.h\"\n#if __has_include(\"optional.h\")\n#endif\n" + demoOp
	changes := map[string]func(b *fixture){
		"source":                              func(b *fixture) { b.write("src/a.cpp", missing+"\n") },
		"header":                              func(b *fixture) { b.write("include/both.h", "#define BOTH 9\n") },
		"shadowing header":                    func(b *fixture) { b.write("src/both.h", "#define BOTH 9\n") },
		"missing header beside the source":    func(b *fixture) { b.write("src/sub/missing.h", "") },
		"missing header in the first folder":  func(b *fixture) { b.write("include/sub/missing.h", "") },
		"missing header in the second folder": func(b *fixture) { b.write("late/sub/missing.h", "") },
		"header of __has_include":             func(b *fixture) { b.write("late/optional.h", "") },
		"flags":                               func(b *fixture) { b.write("config.toml", strings.Replace(oneUnit, "-O1", "-O2", 1)) },
		"compiler":                            func(b *fixture) { b.compiler("# another") },
		"cleaned": func(b *fixture) {
			store, err := cache.Open(b.cacheDir, cache.Options{})
			if err != nil {
				b.t.Fatal(err)
			}
			if _, err := store.Clean(cache.CleanRequest{}); err != nil {
				b.t.Fatal(err)
			}
		},
	}
	b := oneUnitFixture(t)
	b.write("src/a.cpp", missing)
	for name, change := range changes {
		if _, remembered, _ := b.failed(); remembered && name == "" {
			t.Fatal("remembered before the first build")
		}
		if _, remembered, _ := b.failed(); !remembered {
			t.Errorf("before %s: not remembered", name)
		}
		change(b)
		b.compiles()
		var ce *jit.CompileError
		_, err := b.manager().Build(context.Background(), demo(t))
		if n := b.compiles(); n == 0 || errors.As(err, &ce) && !ce.Remembered.IsZero() {
			t.Errorf("%s: the remembered failure was reported (%d compiles): %v", name, n, err)
		}
		for _, extra := range []string{"src/both.h", "src/sub/missing.h", "include/sub/missing.h", "late/sub/missing.h", "late/optional.h"} {
			_ = os.Remove(filepath.Join(b.root, extra))
		}
		b.write("src/a.cpp", missing)
		b.write("include/both.h", testFiles["include/both.h"])
		b.write("config.toml", oneUnit)
		b.cxx = sharedCompiler()
	}
}

// TestFailuresOfTheMachineAreNotRemembered covers failures whose cause is not in the inputs.
func TestFailuresOfTheMachineAreNotRemembered(t *testing.T) {
	located := "echo 'src/a.cpp:1:1: error: expected something' >&2; "
	tests := map[string]string{
		"killed":           located + "kill -9 $$",
		"time limit":       located + "sleep 60",
		"full disk":        located + "echo 'src/a.cpp:1:1: fatal error: error writing to /x.s: No space left on device' >&2; exit 1",
		"child killed":     located + "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
		"compiler crashes": located + "echo 'src/a.cpp:1:1: internal compiler error: Segmentation fault' >&2; exit 1",
		"unreadable":       "echo 'src/a.cpp:1:10: fatal error: both.h: Permission denied' >&2; exit 1",
		"missing tool":     "echo \"g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory\" >&2; exit 1",
		"no output":        "exit 3",
		"no object":        located + "exit 0",
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			b := oneUnitFixture(t)
			b.hook(script)
			short := func(o *jit.Options) {
				if name == "time limit" {
					o.Timeout = 500 * time.Millisecond
				}
			}
			for range 2 {
				if _, remembered, n := b.failed(short); remembered || n == 0 {
					t.Errorf("remembered %v, %d compiles", remembered, n)
				}
			}
		})
	}
}

// TestCompilerReplacedWhileItFails checks that the failure is not stored: either compiler may have failed.
func TestCompilerReplacedWhileItFails(t *testing.T) {
	b := oneUnitFixture(t)
	script := "echo 'src/a.cpp:1:1: error: expected something' >&2; echo '# more' >> \"$0\"; exit 1"
	for range 2 {
		b.compiler(script)
		if _, remembered, n := b.failed(); remembered || n == 0 {
			t.Errorf("remembered %v, %d compiles", remembered, n)
		}
	}
}

func TestFailedLinksAreRemembered(t *testing.T) {
	b := oneUnitFixture(t)
	strict := oneUnit + "[module.module_demo.link_flags]\ncommon = [\"-Wl,--no-undefined\"]\n"
	b.write("config.toml", strict)
	b.write("src/a.cpp", "int missing();\nint demo() { return missing(); }\n")
	links := new(recorder)
	observed := func(o *jit.Options) { o.Observer = links }
	for i, want := range []bool{false, true} {
		e, remembered, _ := b.failed(observed)
		if remembered != want || e.Source != "" || !strings.Contains(e.Output, "undefined reference") {
			t.Errorf("build %d: remembered %v: %v", i, remembered, e)
		}
	}
	if n := links.count("link started"); n != 1 {
		t.Errorf("%d links, want 1", n)
	}
	if _, remembered, _ := b.failed(func(o *jit.Options) { o.Force = true }); remembered {
		t.Error("the forced build reported the remembered failure")
	}
	b.write("src/a.cpp", "int missing() { return 1; }\nint demo() { return missing(); }\n"+demoOp)
	b.build()
}

// TestGPUFailuresAreRemembered breaks a kernel in the host pass and in the device pass, and
// removes a header of the device pass.
func TestGPUFailuresAreRemembered(t *testing.T) {
	testenv.Long(t)
	tests := []struct{ tool, variable, target string }{{"hipcc", "HIPCC", "gfx90a"}, {"nvcc", "NVCC", "sm_80"}}
	broken := map[string]string{
		"device language": "#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)\n#include \"device_only.h\"\nint x = ;\n#endif\n",
		"host language": "#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)\n#else\n#include \"device_only.h\"\nint x = " +
			";\n#endif\n",
		"device missing": "#include \"device_only.h\"\n#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)\n#include " +
			"\"missing.h\"\n#endif\n",
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := testenv.Tool(t, tt.tool)
			for name, text := range broken {
				if name != "device missing" && !*everyPart {
					continue // for a missing header compilers report least
				}
				b := gpuFixture(t)
				b.extra = map[string]string{tt.variable: compiler}
				b.write("src/k.hip", text)
				first := b.failedFor(tt.target)
				if !first.Remembered.IsZero() {
					t.Fatalf("%s: the first build reported a remembered failure", name)
				}
				if again := b.failedFor(tt.target); again.Remembered.IsZero() || again.Output != first.Output {
					t.Errorf("%s: not remembered: %v", name, again)
				}
				b.write("include/device_only.h", "#define FACTOR 3\n")
				if again := b.failedFor(tt.target); !again.Remembered.IsZero() {
					t.Errorf("%s: the remembered failure was reported after a header changed", name)
				}
			}
		})
	}
}

func (b *fixture) failedFor(name string) *jit.CompileError {
	b.t.Helper()
	r := demo(b.t)
	r.Target = parse(b.t, name)
	_, err := b.manager().Build(context.Background(), r)
	var e *jit.CompileError
	if !errors.As(err, &e) {
		b.t.Fatalf("got %v, want a CompileError", err)
	}
	return e
}

func parse(t testing.TB, name string) target.Target {
	t.Helper()
	x, err := target.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
