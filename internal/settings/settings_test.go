package settings_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
)

func variables(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestResolveFillsUnsetFields(t *testing.T) {
	vars := map[string]string{
		"AITER_META_DIR": "/checkout", "AITER_CONFIG": "config/other.toml", "AITER_JIT_PATH": "/a::/b", "MAX_JOBS": "3",
		"AITER_JIT_MAX_SIZE": "5MB", "AITER_JIT_MAX_COUNT": "0", "AITER_NO_COMPILE": "yes",
	}
	s, err := settings.Settings{Getenv: variables(vars)}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	want := cache.DefaultLimits()
	want.Size, want.Count = 5_000_000, 0
	if !slices.Equal(s.Roots, []string{"/checkout"}) || s.Config != "config/other.toml" || !slices.Equal(s.Path, []string{"/a", "/b"}) ||
		s.Jobs != 3 || s.Limits != want || !s.NoCompile || s.Rebuild || s.Trust {
		t.Errorf("from the environment: %+v", s)
	}
	given := settings.Settings{
		Roots: []string{"/mine"}, Path: []string{}, Jobs: 7, Limits: cache.Limits{Size: -1}, Getenv: variables(vars),
	}
	if s, err = given.Resolve(); err != nil || !slices.Equal(s.Roots, []string{"/mine"}) || len(s.Path) != 0 || s.Jobs != 7 ||
		s.Limits.Size != 0 {
		t.Errorf("fields do not win over the environment: %+v, %v", s, err)
	}
}

// Each variable with an invalid value has its own error, and all of them are reported.
func TestResolveReportsEveryVariable(t *testing.T) {
	vars := map[string]string{
		"MAX_JOBS": "0", "AITER_TRUST_JIT_DIR": "maybe", "AITER_JIT_MAX_AGE": "soon", "AITER_JIT_MAX_COUNT": "-1",
		"AITER_NO_COMPILE": "1", "AITER_REBUILD": "1",
	}
	_, err := settings.Settings{Getenv: variables(vars)}.Resolve()
	for _, name := range []string{"MAX_JOBS", "AITER_TRUST_JIT_DIR", "AITER_JIT_MAX_AGE", "AITER_JIT_MAX_COUNT", "AITER_NO_COMPILE"} {
		if err == nil || !strings.Contains(err.Error(), name+" is ") {
			t.Errorf("no error of %s: %v", name, err)
		}
	}
	var first *settings.EnvironmentError
	if !errors.As(err, &first) {
		t.Errorf("got %T, want an *EnvironmentError", err)
	}
}

func TestConfigPath(t *testing.T) {
	root := t.TempDir()
	for given, want := range map[string]string{
		"":                                   "",
		"config/other.toml":                  "config/other.toml",
		filepath.Join(root, "a", "ops.toml"): "a/ops.toml",
		"/elsewhere/ops.toml":                "/elsewhere/ops.toml",
	} {
		got, err := settings.Settings{Roots: []string{root}, Config: given, Getenv: variables(nil)}.ConfigPath()
		if err != nil || got != want {
			t.Errorf("ConfigPath of %q is %q, %v, want %q", given, got, err, want)
		}
	}
}

func TestPreferredTargets(t *testing.T) {
	for list, want := range map[string]int{"": 0, "native": 0, " native ; gfx942,sm_90": 2} {
		got, err := settings.PreferredTargets(variables(map[string]string{"GPU_ARCHS": list}))
		if err != nil || len(got) != want {
			t.Errorf("GPU_ARCHS=%q: %v, %v, want %d targets", list, got, err, want)
		}
	}
	if _, err := settings.PreferredTargets(variables(map[string]string{"GPU_ARCHS": "native,nonsense"})); err == nil {
		t.Error("an unknown target returned no error")
	}
}

// A manager needs no registry: it opens the cache and reads the configuration in the program.
func TestOpenManager(t *testing.T) {
	dir := t.TempDir()
	m, err := settings.Settings{CacheDir: dir, Getenv: variables(nil)}.OpenManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Cache().Path() != dir {
		t.Errorf("the cache is %s, want %s", m.Cache().Path(), dir)
	}
	if _, err := m.Config().Module(settings.SupportModule); err != nil {
		t.Error(err)
	}
}

// A program that does not pull sets logs a warning if AITER_JIT_REMOTE is set. A program that does pull sets opens the source.
func TestOpenManagerRemote(t *testing.T) {
	var log strings.Builder
	env := variables(map[string]string{"AITER_JIT_REMOTE": "oci://registry.example/kernels:v1"})
	s := settings.Settings{CacheDir: t.TempDir(), Getenv: env, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	m, err := s.OpenManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
	if !strings.Contains(log.String(), "AITER_JIT_REMOTE is ignored") {
		t.Errorf("log %q", log.String())
	}
	wrong := errors.New("wrong")
	s.Remote = func(o jit.SourceOptions) (jit.Source, error) {
		if o.Cache.Path() != s.CacheDir || o.Getenv("AITER_JIT_REMOTE") == "" || o.Logger == nil {
			t.Errorf("options %+v", o)
		}
		return nil, wrong
	}
	if _, err := s.OpenManager(t.Context()); !errors.Is(err, wrong) {
		t.Errorf("%v, want %v", err, wrong)
	}
}

// A path of the configuration needs a single root. With several roots it is an error that names them.
func TestConfigPathOfSeveralRoots(t *testing.T) {
	s := settings.Settings{Getenv: variables(map[string]string{"AITER_META_DIR": "/a:/b", "AITER_CONFIG": "ops.toml"})}
	_, err := s.ConfigPath()
	bad, ok := errors.AsType[*settings.ConfigPathError](err)
	if !ok || !slices.Equal(bad.Roots, []string{"/a", "/b"}) || !strings.Contains(err.Error(), `["/a" "/b"]`) {
		t.Errorf("got %v", err)
	}
	s.Roots = []string{"/c"}
	if path, err := s.ConfigPath(); err != nil || path != "ops.toml" {
		t.Errorf("with one root: %s, %v", path, err)
	}
}
