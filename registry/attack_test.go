//go:build linux

package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
)

// attacker is a user who owns no file of the tests.
const attacker = 12345

// victim is a folder that all users may write to, as project folders often are, with a
// cache in it, and the library that the attacker wants the victim to load.
type victim struct {
	t       *testing.T
	project string
	evil    string // library whose constructor creates the file pwned
	pwned   string
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	base, err := os.MkdirTemp("", "aiter-attack-") // other users cannot read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	v := &victim{t: t, project: filepath.Join(base, "project"), evil: filepath.Join(base, "evil.so"), pwned: filepath.Join(base, "pwned")}
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(v.project, 0o700), os.Chmod(v.project, 0o777)); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(base, "evil.c")
	text := fmt.Sprintf("#include <fcntl.h>\n__attribute__((constructor)) static void run(void) { creat(%q, 0600); }\n", v.pwned)
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", v.evil, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return v
}

// asAttacker runs a shell command in the project folder as the attacker.
func (v *victim) asAttacker(script string) {
	v.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = v.project
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: attacker, Gid: attacker}}
	if out, err := cmd.CombinedOutput(); err != nil {
		v.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// evilCache makes a cache that is owned by the attacker and has the attacker's library
// under the key of the support library.
func (v *victim) evilCache(dir string) {
	v.t.Helper()
	r := open(v.t, registry.Options{CacheDir: dir, Trust: true})
	results, err := r.Manager().Build(context.Background(), supportLibrary(v.t))
	if err != nil {
		v.t.Fatal(err)
	}
	store, good := r.Manager().Cache(), results[0].Artifact
	stage, err := store.NewStage()
	if err != nil {
		v.t.Fatal(err)
	}
	text, err := os.ReadFile(v.evil)
	if err == nil {
		err = os.WriteFile(stage.File("library"), text, 0o755)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	evil, err := store.AddArtifact(stage, stage.File("library"), good)
	if err == nil {
		err = store.Put(cache.Linked, good.LinkKey, []byte(evil.ID))
	}
	if out, bad := exec.Command("chown", "-R", fmt.Sprint(attacker), dir).CombinedOutput(); err != nil || bad != nil {
		v.t.Fatalf("%v, %v: %s", err, bad, out)
	}
}

func (v *victim) wantUnharmed() {
	v.t.Helper()
	if _, err := os.Lstat(v.pwned); err == nil {
		v.t.Error("the attacker's code ran")
	}
}

func supportLibrary(t *testing.T) jit.Request {
	return jit.Request{Module: "module_aiter_ffi", Target: cpu(t)}
}

// The attacker replaces the whole cache after the victim has opened it.
func TestNothingIsLoadedFromReplacedCache(t *testing.T) {
	v := newVictim(t)
	ours, hers := filepath.Join(v.project, "jit"), filepath.Join(v.project, "hers")
	v.evilCache(hers)
	r, err := registry.Open(context.Background(), registry.Options{CacheDir: ours})
	if err == nil {
		defer r.Close()
		v.asAttacker("mv jit aside; mv hers jit")
		err = r.LoadSupport(context.Background())
	}
	v.wantUnharmed()
	if bad := (*cache.UntrustedError)(nil); !errors.As(err, &bad) {
		t.Errorf("got %v, want an UntrustedError", err)
	}
}

// exchange is the attacker's process: it exchanges two files until it is killed.
func exchange(pair string) int {
	one, two, _ := strings.Cut(pair, ":")
	for {
		if err := unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, two, unix.RENAME_EXCHANGE); err != nil {
			fmt.Println(err)
			return 1
		}
	}
}

// asAttackerUntil starts this test's program as the attacker. end stops it.
func (v *victim) asAttackerUntil(variable string) (end func()) {
	v.t.Helper()
	program := filepath.Join(filepath.Dir(v.project), "program")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, self, 0o755)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env, cmd.Stdout = "/", []string{variable}, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: attacker, Gid: attacker}}
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if out.Len() > 0 {
			v.t.Errorf("the attacker: %s", &out)
		}
	}
}

// The attacker exchanges the library continuously, in a cache that the user trusts
// explicitly. The loader must map the bytes that were hashed.
func TestVerifiedBytesAreLoaded(t *testing.T) {
	v := newVictim(t)
	dir := filepath.Join(v.project, "jit")
	r := open(t, registry.Options{CacheDir: dir, Trust: true})
	results, err := r.Manager().Build(context.Background(), supportLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	library := results[0].Artifact.Path
	hers := filepath.Join(filepath.Dir(library), "hers.so")
	if out, err := exec.Command("sh", "-ec", "cp "+v.evil+" "+hers+"; chmod -R a+rwX "+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	end := v.asAttackerUntil("AITER_TEST_EXCHANGE=" + library + ":" + hers)
	loaded := 0
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		// The dynamic linker does not open a loaded library of the same name again.
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		r, err := registry.Open(context.Background(), registry.Options{CacheDir: t.TempDir(), Path: []string{link}, NoCompile: true, Trust: true})
		if err != nil {
			t.Fatal(err)
		}
		if r.LoadSupport(context.Background()) == nil {
			loaded++
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	end()
	v.wantUnharmed()
	if loaded == 0 {
		t.Error("no attempt loaded the library")
	}
}
