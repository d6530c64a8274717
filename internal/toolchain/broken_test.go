//go:build linux

package toolchain

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/process"
)

func TestBrokenCompilers(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"fails", "echo broken; exit 3", "broken"},
		{"prints nothing", "exit 0", "no version"},
		{"no commands", "echo 1.2.3", "no command"},
		{"killed", "kill -9 $$", "killed"},
		{"not a program", "\x00\x01", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "g++")
			write(t, path, "#!/bin/sh\n"+c.body+"\n", 0o755)
			_, err := (&Finder{Env: environment("CXX", path)}).Find(context.Background(), parse(t, "cpu"))
			var probe *ProbeError
			if !errors.As(err, &probe) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want a ProbeError with %q", err, c.want)
			}
		})
	}
}

// runs reports whether the process exists and is not a zombie.
func runs(pid string) bool {
	state, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(state), ") Z ")
}

// TestEndlessOutput checks that a compiler with endless output is killed at once, and that the output takes little memory.
func TestEndlessOutput(t *testing.T) {
	for _, c := range []struct{ target, variable, name, body string }{
		{"cpu", "CXX", "g++", "yes; sleep 60"},
		{"cpu", "CXX", "g++", "case \"$*\" in *-shared*-fPIC*) yes ;; esac\n" + strings.TrimPrefix(fakeCompiler, "#!/bin/sh\n")},
		{"gfx942", "HIPCC", "hipcc", "yes >&2"},
		{"gfx942", "HIPCC", "hipcc", "case \"$*\" in *--offload-arch=*) yes ;; esac\n" +
			strings.NewReplacer("#!/bin/sh\n", "", "g++ (Fake)", "HIP version:", "'#include", "' %s/cc1plus -E\\n#include", `"$here/include"`,
				`"$here" "$here/include"`).Replace(fakeCompiler)},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		write(t, path, "#!/bin/sh\n"+c.body+"\n", 0o755)
		write(t, filepath.Join(filepath.Dir(path), "cc1plus"), "#!/bin/sh\n", 0o755)
		f := &Finder{Env: environment(c.variable, path), Timeout: 20 * time.Second}
		start := time.Now()
		_, err := f.Find(context.Background(), parse(t, c.target))
		var probe *ProbeError
		var over *process.OverflowError
		if !errors.As(err, &probe) || !errors.As(err, &over) || len(probe.Output) > maxAnswer {
			t.Errorf("%s: error is %v, want a ProbeError for too much output", c.body, err)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("%s: took %s", c.body, took)
		}
	}
}

// TestEndlessDisassembler is like TestEndlessOutput for a disassembler.
func TestEndlessDisassembler(t *testing.T) {
	path := filepath.Join(t.TempDir(), "llvm-objdump")
	write(t, path, "#!/bin/sh\nyes\n", 0o755)
	f := &Finder{Env: environment("LLVM_OBJDUMP", path), Timeout: 20 * time.Second}
	_, err := f.Disassembler(context.Background())
	var missing *NotFoundError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "printed more than") {
		t.Errorf("error is %v, want one about the output", err)
	}
}

func TestHangingCompiler(t *testing.T) {
	dir := t.TempDir()
	path, pid := filepath.Join(dir, "g++"), filepath.Join(dir, "pid")
	write(t, path, "#!/bin/sh\nsleep 60 &\necho $! >"+pid+"\nwait\n", 0o755)
	f := &Finder{Env: environment("CXX", path), Timeout: 200 * time.Millisecond}
	start := time.Now()
	_, err := f.Find(context.Background(), parse(t, "cpu"))
	var probe *ProbeError
	if !errors.As(err, &probe) || probe.Timeout != f.Timeout {
		t.Errorf("error is %v, want a ProbeError after %s", err, f.Timeout)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	child := strings.TrimSpace(string(read(t, pid)))
	for deadline := time.Now().Add(5 * time.Second); runs(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the compiler's child %s still runs", child)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.Find(ctx, parse(t, "cpu")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error is %v", err)
	}
}
