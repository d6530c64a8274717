//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// wrapHipcc writes a wrapper of hipcc. Its shell code may change "$@", for example the target.
func wrapHipcc(t *testing.T, change string) string {
	t.Helper()
	real := testenv.Tool(t, "hipcc")
	root := filepath.Join(filepath.Dir(filepath.Dir(real)), "rocm")
	wrapper := filepath.Join(t.TempDir(), "hipcc")
	script := "#!/bin/sh\n# aiter-root: " + root + "\n" + change + "\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return wrapper
}

// TestCodeForAnotherTarget uses a compiler that makes code for another target than requested. The
// build has to fail before it publishes anything, and to succeed with a correct compiler.
func TestCodeForAnotherTarget(t *testing.T) {
	testenv.Long(t)
	rewrite := func(from, to string) string {
		return `n=$#; while [ $n -gt 0 ]; do a=$1; shift; n=$((n-1)); [ "$a" = --offload-arch=` + from + ` ] && a=--offload-arch=` +
			to + `; set -- "$@" "$a"; done`
	}
	kernels, none := gpuFiles["src/k.hip"], demoOp
	for _, tt := range []struct{ name, source, asked, made string }{
		{"another architecture", kernels, "gfx942", "gfx90a"},
		{"an extra feature, without kernels", none, "gfx90a", "gfx90a:xnack-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := gpuFixture(t)
			b.write("src/k.hip", tt.source)
			wrapper := wrapHipcc(t, rewrite(tt.asked, tt.made))
			b.extra = map[string]string{"HIPCC": wrapper}
			req := jit.Request{Module: "module_demo", Target: parseTarget(t, tt.asked)}
			res, err := b.manager().Build(context.Background(), req)
			var failed *jit.CompileError
			if !errors.As(err, &failed) {
				t.Fatalf("error is %v, want a CompileError; the artifact is %q", err, res[0].Artifact.Path)
			}
			for _, want := range []string{"src/k.hip", "made code for " + tt.made + ",", "expected " + tt.asked + ";", wrapper, "--offload-arch"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not contain %q: %v", want, err)
				}
			}
			b.checkNoDevice()

			b.extra = map[string]string{"HIPCC": wrapHipcc(t, "")}
			if _, err := b.manager().Build(context.Background(), req); err != nil {
				t.Errorf("a wrapper that changes nothing: %v", err)
			}
		})
	}
}

// checkNoDevice checks that the cache has no artifact, and no object record but that of the host pass.
func (b *fixture) checkNoDevice() {
	b.t.Helper()
	for pattern, most := range map[string]int{"v2/artifact/*": 0, "v2/record/object/*/*": 1} {
		files, err := filepath.Glob(filepath.Join(b.cacheDir, pattern))
		if err != nil || len(files) > most {
			b.t.Errorf("%s: %q, error %v; want at most %d", pattern, files, err, most)
		}
	}
}
