package device_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/dl"
)

// fake compiles testdata/NAME.c, a vendor library over host memory. Each call makes another
// library, so that tests do not share devices.
func fake(t testing.TB, name string, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on PATH")
	}
	lib := filepath.Join(t.TempDir(), "lib"+name+".so")
	args := append([]string{"-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-o", lib}, flags...)
	if out, err := exec.Command(cc, append(args, filepath.Join("testdata", name+".c"))...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return lib
}

// callFake calls a function of a fake library that the vendor's library does not have.
func callFake(t testing.TB, lib, fn string, args ...uintptr) int {
	t.Helper()
	l, err := dl.Open(dl.Local, lib)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := l.Sym(fn)
	if err != nil {
		t.Fatal(err)
	}
	return int(int32(dl.Call(addr, args...)))
}

type opener func(...string) (device.Driver, error)

func openFake(t testing.TB, open opener, lib string) device.Driver {
	t.Helper()
	drv, err := open(lib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDriver(t, drv) })
	return drv
}

func closeDriver(t testing.TB, drv device.Driver) {
	t.Helper()
	if err := drv.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// real opens the machine's driver. Without one the test is skipped, or fails if the variable is
// set.
func real(t testing.TB, open opener, libraries []string, required string) device.Driver {
	t.Helper()
	drv, err := open(libraries...)
	if err != nil && os.Getenv(required) == "1" {
		t.Fatalf("%s=1: %v", required, err)
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { closeDriver(t, drv) })
	return drv
}
