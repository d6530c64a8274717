package dl_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/aiter-go/aiter/internal/dl"
)

const source = `
#include <stdint.h>
int64_t add(int64_t a, int64_t b) { return a + b; }
int32_t minus_one(void) { return -1; }
int64_t twelve(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g, int64_t h,
               int64_t i, int64_t j, int64_t k, int64_t l) {
  return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j + 11*k + 12*l;
}
void fill(int32_t* p, int64_t n) { for (int64_t i = 0; i < n; i++) p[i] = (int32_t)(i * i); }
const char* greet(void) { return "hello"; }
`

// build compiles the C source above to a shared library, or skips the test.
func build(t testing.TB) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on PATH")
	}
	dir := t.TempDir()
	src, lib := filepath.Join(dir, "sample.c"), filepath.Join(dir, "libsample.so")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, src).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return lib
}

func open(t testing.TB) *dl.Library {
	t.Helper()
	lib, err := dl.Open(dl.Local, build(t))
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

func sym(t testing.TB, l *dl.Library, name string) uintptr {
	t.Helper()
	fn, err := l.Sym(name)
	if err != nil {
		t.Fatal(err)
	}
	return fn
}

func TestCall(t *testing.T) {
	lib := open(t)
	if got := dl.Call(sym(t, lib, "add"), 40, 2); got != 42 {
		t.Errorf("add(40, 2) = %d", got)
	}
	if got := int32(dl.Call(sym(t, lib, "minus_one"))); got != -1 {
		t.Errorf("minus_one() = %d", got)
	}
	got := dl.Call(sym(t, lib, "twelve"), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	if want := uintptr(650); got != want {
		t.Errorf("twelve arguments: got %d, want %d", got, want)
	}
}

func TestCallWritesGoMemory(t *testing.T) {
	fill := sym(t, open(t), "fill")
	var out [100]int32
	dl.Call(fill, uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)))
	for i, v := range out {
		if v != int32(i*i) {
			t.Fatalf("out[%d] = %d", i, v)
		}
	}
}

func TestStrings(t *testing.T) {
	lib := open(t)
	if got := dl.GoString(dl.Call(sym(t, lib, "greet"))); got != "hello" {
		t.Errorf("greet() = %q", got)
	}
	if got := dl.GoString(0); got != "" {
		t.Errorf("GoString(0) = %q", got)
	}
}

func TestOpenErrors(t *testing.T) {
	notELF := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(notELF, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"":                         "empty",
		"a\x00b":                   "NUL",
		"/nonexistent/libnone.so":  "/nonexistent/libnone.so",
		"libsurely-not-here.so.77": "libsurely-not-here.so.77",
		notELF:                     "text.so",
	} {
		_, err := dl.Open(dl.Local, name)
		var oe *dl.OpenError
		if !errors.As(err, &oe) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v", name, err)
		}
	}
}

// A library that exists but lacks a dependency is not a missing library.
func TestOpenBroken(t *testing.T) {
	lib := build(t)
	needy := filepath.Join(t.TempDir(), "libneedy.so")
	if out, err := exec.Command("cc", "-shared", "-Wl,--no-as-needed", "-o", needy, lib).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	if err := os.Remove(lib); err != nil {
		t.Fatal(err)
	}
	_, err := dl.Open(dl.Local, needy)
	var oe *dl.OpenError
	if !errors.As(err, &oe) || oe.Attempts[0].Missing() || !strings.Contains(err.Error(), "libsample.so") {
		t.Errorf("a library without its dependency: %v", err)
	}
}

func TestOpenFirst(t *testing.T) {
	lib := build(t)
	if _, err := dl.Open(dl.Local|dl.Loaded, lib); err == nil {
		t.Error("a library that was not opened counts as loaded")
	}
	l, err := dl.Open(dl.Local, "/nonexistent/a.so", lib, "/nonexistent/b.so")
	if err != nil || l.Name() != lib {
		t.Fatalf("Open: %v, %v", l, err)
	}
	if _, err := dl.Open(dl.Local|dl.Loaded, lib); err != nil {
		t.Errorf("an open library does not count as loaded: %v", err)
	}
	_, err = dl.Open(dl.Local, "/nonexistent/a.so", "/nonexistent/b.so")
	var oe *dl.OpenError
	if !errors.As(err, &oe) || len(oe.Attempts) != 2 {
		t.Errorf("Open of two missing libraries: %v", err)
	}
	want := "open shared library: not found: /nonexistent/a.so, /nonexistent/b.so"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err = dl.Open(dl.Local); err == nil {
		t.Error("Open without names gave no error")
	}
}

func TestSymErrors(t *testing.T) {
	lib := open(t)
	for _, name := range []string{"", "no_such_symbol", "a\x00b"} {
		_, err := lib.Sym(name)
		var se *dl.SymbolError
		if !errors.As(err, &se) || se.Symbol != name || se.Library != lib.Name() {
			t.Errorf("Sym(%q): %v", name, err)
		}
	}
	if err := lib.Close(); err != nil {
		t.Error(err)
	}
}

// The dynamic linker keeps an error text for each thread. When many goroutines fail at once, each
// must get the text about its own symbol.
func TestConcurrentErrors(t *testing.T) {
	lib := open(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			name := "missing_" + string(rune('a'+i))
			for range 50 {
				if _, err := lib.Sym(name); err == nil || strings.Count(err.Error(), name) < 2 {
					t.Errorf("Sym(%s): %v", name, err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkCall(b *testing.B) {
	add := sym(b, open(b), "add")
	b.ReportAllocs()
	for b.Loop() {
		dl.Call(add, 40, 2)
	}
}
