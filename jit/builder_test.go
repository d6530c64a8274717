//go:build linux

package jit_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// TestMain runs the test program as a builder process if an environment variable selects it.
func TestMain(m *testing.M) {
	if how := os.Getenv("AITER_TEST_CHURN"); how != "" {
		os.Exit(churn(how))
	}
	if dir := os.Getenv("AITER_TEST_BUILDER"); dir != "" {
		os.Exit(builder(dir))
	}
	os.Exit(m.Run())
}

// builder builds once in its own process and prints the digest.
func builder(dir string) int {
	if err := handicap(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b := fixtureIn(dir)
	if os.Getenv("AITER_TEST_NOLOCKS") != "" {
		b.flock = noLocks
	}
	m, err := b.open()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cpu, err := target.Parse("cpu")
	if err != nil {
		return 1
	}
	res, err := m.Build(context.Background(), jit.Request{Module: "module_demo", Target: cpu})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	value, err := call(res[0].Artifact.Path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("%s demo_a=%d\n", res[0].Artifact.Digest, value)
	return 0
}

// noLocks is a lock that excludes no process.
func noLocks(*os.File, int) error { return nil }

// handicap waits until all processes of the test have started, and then sets the limit of open files that an
// environment variable selects.
func handicap() error {
	if os.Getenv("AITER_TEST_GATE") != "" {
		_, _ = io.ReadAll(os.Stdin)
	}
	n, err := strconv.ParseUint(os.Getenv("AITER_TEST_NOFILE"), 10, 64)
	if err != nil {
		return nil
	}
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
}

func (b *fixture) process() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "AITER_TEST_BUILDER="+filepath.Dir(b.root))
	return cmd
}
