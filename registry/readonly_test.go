//go:build linux

package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
)

// noCompilers is an environment without compilers and without other settings.
var noCompilers = map[string]string{
	"CXX": "/nonexistent/c++", "HIPCC": "/nonexistent/hipcc", "NVCC": "/nonexistent/nvcc",
	"AITER_JIT_DIR": "", "AITER_JIT_PATH": "", "AITER_META_DIR": "",
}

// prebuilt exports the operators for the CPU to a folder that all users can read.
func prebuilt(t *testing.T) string {
	t.Helper()
	r := open(t, registry.Options{})
	reqs := []jit.Request{{Module: "module_causal_conv1d", Target: cpu(t)}, {Module: "module_aiter_ffi", Target: cpu(t)}}
	results, err := r.Manager().Build(context.Background(), reqs...)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("", "aiter-prebuilt-") // other users cannot read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	made, err := cache.Open(filepath.Join(base, "made"), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Manager().Export(made, results), made.MakeReadable(), os.Chmod(base, 0o755)); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(base, "moved")
	if err := os.Rename(made.Path(), moved); err != nil {
		t.Fatal(err)
	}
	return moved
}

// convolve calls an operator and checks its result.
func convolve(r *registry.Registry) error {
	op, err := r.Lookup("causal_conv1d_fwd")
	if err != nil {
		return err
	}
	out, x, w := small()
	if err := op.Call(context.Background(), out, x, w); err != nil {
		return err
	}
	got, err := out.Float64s()
	if err != nil {
		return err
	}
	if want := "[1 12 23 34]"; fmt.Sprint(got) != want {
		return fmt.Errorf("got %v, want %s", got, want)
	}
	return nil
}

func TestPrebuiltOperatorsWithoutCompilers(t *testing.T) {
	moved := prebuilt(t)
	c := new(compiles)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Path: []string{moved}, Getenv: env(noCompilers), Observer: c})
	if err := convolve(r); err != nil {
		t.Fatal(err)
	}
	if n := c.n.Load(); n != 0 {
		t.Errorf("%d compiles", n)
	}
	alone := open(t, registry.Options{CacheDir: t.TempDir(), Getenv: env(noCompilers)})
	var build *registry.BuildError
	if err := convolve(alone); !errors.As(err, &build) {
		t.Errorf("without the prebuilt cache: %v", err)
	}
}

// TestNoCompile checks that AITER_NO_COMPILE and the option prevent builds on a machine with
// compilers.
func TestNoCompile(t *testing.T) {
	moved := prebuilt(t)
	forbidden := env(map[string]string{"AITER_NO_COMPILE": "1"})
	c := new(compiles)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Path: []string{moved}, Getenv: forbidden, Observer: c})
	if err := convolve(r); err != nil || c.n.Load() != 0 {
		t.Errorf("prebuilt: %v, %d compiles", err, c.n.Load())
	}
	for name, opts := range map[string]registry.Options{"by the environment": {Getenv: forbidden}, "by the option": {NoCompile: true}} {
		opts.CacheDir, opts.Observer = t.TempDir(), c
		err := convolve(open(t, opts))
		if no := (*jit.NoCompileError)(nil); !errors.As(err, &no) || c.n.Load() != 0 || !strings.Contains(err.Error(), "AITER_JIT_PATH") {
			t.Errorf("%s, nothing built: %v, %d compiles", name, err, c.n.Load())
		}
	}
	for _, opts := range []registry.Options{{NoCompile: true, Rebuild: true}, {NoCompile: true, Reload: true, Root: ".."}} {
		opts.CacheDir = t.TempDir()
		_, err := registry.Open(context.Background(), opts)
		if bad := (*registry.EnvironmentError)(nil); !errors.As(err, &bad) || bad.Name != "AITER_NO_COMPILE" {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// wrongCXX is part of the warning about a variable that does not name a compiler.
const wrongCXX = "CXX=/nonexistent/c++: there is no such compiler"

// TestReadOnlyCacheServes mounts the user's own cache read-only. The registry has to use its
// code and to build missing code in another cache.
func TestReadOnlyCacheServes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a filesystem needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount(prebuilt(t), dir, "", syscall.MS_BIND, ""); err != nil {
		if strings.Contains(os.Getenv("AITER_REQUIRE_TOOLS"), "mount") {
			t.Fatal(err)
		}
		t.Skipf("mounting is forbidden here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	if err := syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	tmp := t.TempDir()
	vars := map[string]string{"TMPDIR": tmp}
	for k, v := range noCompilers {
		vars[k] = v
	}
	r, err := registry.Open(context.Background(), registry.Options{CacheDir: dir, Getenv: env(vars),
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := convolve(r); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), wrongCXX) {
		t.Errorf("want a warning about CXX, and none about the cache, in which nothing is stored:\n%s", log.String())
	}
	vars["CXX"] = ""
	b := open(t, registry.Options{CacheDir: dir, Getenv: env(vars)})
	results, err := b.Manager().Build(context.Background(), jit.Request{Module: "module_aiter_ffi", Target: cpu(t)})
	if err != nil || results[0].Artifact.ReadOnly != dir {
		t.Errorf("with a compiler: %+v, %v", results, err)
	}
}

// TestPrebuiltWhereNothingIsWritable checks that prebuilt code needs no writable folder, and that
// the error about other code names the folder.
func TestPrebuiltWhereNothingIsWritable(t *testing.T) {
	const unwritable = "/sys"                // not even root can create files in it
	moved, taken := prebuilt(t), t.TempDir() // g++ needs a folder for its temporary files
	if err := os.WriteFile(filepath.Join(taken, fmt.Sprintf("aiter-jit-%d", os.Getuid())), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"AITER_JIT_DIR": "", "XDG_CACHE_HOME": "", "HOME": unwritable, "AITER_JIT_PATH": moved}
	for name, set := range map[string][]string{
		"no compiler":         {"CXX=/nonexistent/c++", "TMPDIR=" + unwritable},
		"compilers forbidden": {"AITER_NO_COMPILE=1", "TMPDIR=" + unwritable},
		"with a compiler":     {"TMPDIR=" + taken},
	} {
		t.Run(name, func(t *testing.T) {
			vars := maps.Clone(vars)
			for _, s := range set {
				key, value, _ := strings.Cut(s, "=")
				vars[key] = value
			}
			var log bytes.Buffer
			r, err := registry.Open(context.Background(), registry.Options{Getenv: env(vars), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			// Folders that cannot be written cause no warning.
			if err := convolve(r); err != nil || strings.Count(log.String(), "\n") != strings.Count(log.String(), wrongCXX) {
				t.Errorf("%v, %s", err, log.String())
			}
			if _, err := r.Manager().Cache().Stats(); err != nil {
				t.Error(err)
			}
		})
	}
	vars["TMPDIR"] = taken
	r, err := registry.Open(context.Background(), registry.Options{Getenv: env(vars), Rebuild: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var access *cache.AccessError
	if err := convolve(r); !errors.As(err, &access) || !strings.Contains(err.Error(), "/sys/.cache/aiter/jit: ") ||
		!strings.Contains(err.Error(), "AITER_JIT_DIR") {
		t.Errorf("a build without a writable cache: %v", err)
	}
	vars["AITER_JIT_PATH"] = ""
	if _, err := registry.Open(context.Background(), registry.Options{Getenv: env(vars)}); !errors.As(err, &access) {
		t.Errorf("no writable cache and no prebuilt one: %v", err)
	}
}

// TestPrebuiltOfAnotherUser calls a prebuilt operator as a user who owns no file.
func TestPrebuiltOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	moved := prebuilt(t)
	program := filepath.Join(filepath.Dir(moved), "program")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	const nobodyID = 65534
	tmp := filepath.Join(filepath.Dir(moved), "tmp")
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chown(tmp, nobodyID, nobodyID)); err != nil {
		t.Fatal(err)
	}
	run := func() (string, error) {
		cmd := exec.Command(program)
		cmd.Dir = "/"
		cmd.Env = []string{"AITER_TEST_CALL=1", "HOME=/nonexistent", "CXX=/nonexistent/c++", "TMPDIR=" + tmp, "AITER_JIT_PATH=" + moved}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err != nil || !strings.Contains(out, "called") || strings.Count(out, " WARN ") != 1 ||
		strings.Count(out, wrongCXX) != 1 {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.Chown(moved, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err == nil || !strings.Contains(out, "run as root: chown -h root "+moved) {
		t.Errorf("cache of a third user: %v: %s", err, out)
	}
}

// callOnce runs as a process that configures the registry by environment variables only.
func callOnce() int {
	r, err := registry.Open(context.Background(), registry.Options{})
	if err == nil {
		err = convolve(r)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("called")
	return 0
}
