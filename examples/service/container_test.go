package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestContainer runs the service as examples/kubernetes describes: with the environment of the
// Dockerfile, as its user, with prebuilt kernels, on a read-only root file system.
func TestContainer(t *testing.T) {
	testenv.Long(t)
	if err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", os.TempDir()).Run(); err != nil || os.Getuid() != 0 {
		testenv.Tool(t, "mount") // fails if CI requires it
		t.Skip("needs mounts, as root")
	}
	root := testenv.Root(t)
	dockerfile := read(t, filepath.Join(root, "examples/kubernetes/Dockerfile"))
	deployment := read(t, filepath.Join(root, "examples/kubernetes/deployment.yaml"))
	for _, want := range []string{
		"readOnlyRootFilesystem: true", "path: /readyz, port: 8080", "path: /healthz, port: 8080", "runAsUser: 65532",
	} {
		if !strings.Contains(deployment, want) {
			t.Errorf("deployment.yaml lacks %q", want)
		}
	}
	user := submatch(t, dockerfile, `(?m)^USER (\d+):`)
	environment := strings.Fields(submatch(t, dockerfile, `(?m)^ENV (.*)$`))
	folder := submatch(t, dockerfile, `AITER_JIT_PATH=(\S+)`)
	build := submatch(t, dockerfile, `(?m)^RUN .* aiterctl (build --all .*)$`)

	// The folder that serves as the image's root gets only what a program without compilers needs.
	image := filepath.Join(t.TempDir(), "image")
	for _, dir := range []string{"proc", "dev", "tmp", filepath.Dir(folder)} {
		if err := os.MkdirAll(filepath.Join(image, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	compile := func(pkg string) string {
		out := filepath.Join(image, filepath.Base(pkg))
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return out
	}
	compile("./examples/service")
	shared, err := testenv.SharedCache()
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(strings.NewReplacer("${ARCHS}", "cpu", folder, filepath.Join(image, folder)).Replace(build))
	cmd := exec.Command(compile("./cmd/aiterctl"), args...)
	cmd.Env = append(os.Environ(), "AITER_JIT_DIR="+shared)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`set -e
		for d in lib lib64 usr; do if [ -e /$d ]; then mkdir -p %[1]s/$d; mount --bind /$d %[1]s/$d; fi; done
		mount --bind %[1]s %[1]s
		for d in lib lib64 usr; do if [ -e /$d ]; then mount --bind /$d %[1]s/$d; fi; done
		mount -t proc none %[1]s/proc
		mount -o remount,ro,bind %[1]s
		if touch %[1]s/tmp/file 2>/dev/null; then echo 'the root can be written'; exit 1; fi
		exec chroot --userspec=%[2]s:%[2]s %[1]s /usr/bin/env -i PATH= %[3]s /service -addr %[4]s -device cpu`,
		image, user, strings.Join(environment, " "), addr)
	service := exec.Command("unshare", "-m", "sh", "-c", script)
	output := new(strings.Builder)
	service.Stdout, service.Stderr = output, output
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- service.Wait() }()
	go func() {
		defer close(ready)
		waitFor(t, "http://"+addr+"/readyz")
	}()
	select {
	case err := <-ended:
		t.Fatalf("the service ended with %v: %s", err, output)
	case <-ready:
		_ = service.Process.Kill()
		<-ended
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// submatch returns the first group of an expression, which must match.
func submatch(t *testing.T, text, expression string) string {
	t.Helper()
	found := regexp.MustCompile(expression).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no match for %s", expression)
	}
	return found[1]
}
