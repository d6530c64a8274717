//go:build linux

package registry_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
)

// brokenTree is a source tree whose library lacks the operator it declares.
func brokenTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"csrc", "config"} {
		sub := filepath.Join(root, dir)
		if err := os.CopyFS(sub, os.DirFS(filepath.Join("..", dir))); err != nil {
			t.Fatal(err)
		}
	}
	add := "\n[module.module_hollow]\ndefaults = false\n[[module.module_hollow.source]]\npath = " +
		"\"csrc/kernels/hollow.cpp\"\n[[module.module_hollow.op]]\nname = \"hollow\"\nschema = \"(Tensor x) -> ()\"\n"
	config := filepath.Join(root, "config/opt_compiler.toml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(config, append(text, add...), 0o644),
		os.WriteFile(filepath.Join(root, "csrc/kernels/hollow.cpp"), []byte("int nothing;\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestLibraryWithoutTheOperator(t *testing.T) {
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: brokenTree(t)})
	_, x, _ := small()
	err := lookup(t, r, "hollow").Call(context.Background(), x)
	var link *jit.CompileError
	if !errors.As(err, &link) || !strings.Contains(link.Reason, "hollow in csrc/kernels/hollow.cpp") {
		t.Errorf("got %v, want a CompileError that names the operator and its source", err)
	}
}

func TestConfigErrorsHaveLineAndColumn(t *testing.T) {
	root := brokenTree(t)
	config := filepath.Join(root, "config/opt_compiler.toml")
	if err := os.WriteFile(config, []byte("[module.module_x]\nsorce = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := registry.Open(context.Background(), registry.Options{CacheDir: t.TempDir(), Root: root})
	var bad *opconfig.Error
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "config/opt_compiler.toml:2:1: unknown key \"sorce\"") {
		t.Errorf("got %v, want an opconfig.Error with line and column", err)
	}
}

func TestBadEnvironment(t *testing.T) {
	for name, value := range map[string]string{"MAX_JOBS": "many", "GPU_ARCHS": "gfx9999", "AITER_LOG_LEVEL": "loud"} {
		_, err := registry.Open(context.Background(), registry.Options{CacheDir: t.TempDir(), Getenv: env(map[string]string{name: value})})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: got %v, want an error that names the variable", name, value, err)
		}
	}
}

func TestNoHome(t *testing.T) {
	var log strings.Builder
	tmp := t.TempDir()
	r, err := registry.Open(context.Background(), registry.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Getenv: env(map[string]string{"TMPDIR": tmp, "HOME": "", "XDG_CACHE_HOME": ""}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := r.Manager().Cache().Path(); filepath.Dir(got) != tmp {
		t.Errorf("got the cache folder %s", got)
	}
	if log.Len() != 0 {
		t.Errorf("a warning before anything is stored: %s", log.String())
	}
	stage, err := r.Manager().Cache().NewStage()
	if err != nil {
		t.Fatal(err)
	}
	stage.Close()
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "set AITER_JIT_DIR") {
		t.Errorf("want one warning that names the variable to set: %s", log.String())
	}
}
