package ffi_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/tensor"
)

// libraries is the support library and two modules, compiled once for all tests.
type libraries struct {
	dir     string
	support *ffi.Support
	echo    *ffi.Module
	conv    *ffi.Module
}

var flags = []string{"-O2", "-std=c++17", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-Wl,--as-needed",
	"-Wl,-z,nodelete", "-pthread"}

const csrc = "../../csrc/"

// setup compiles and loads once; the folder exists as long as the tests run.
var setup = sync.OnceValues(func() (*libraries, error) {
	dir, err := os.MkdirTemp("", "aiter-ffi")
	if err != nil {
		return nil, err
	}
	b := &libraries{dir: dir}
	units := map[string][]string{
		"support.so": {csrc + "support/aiter_ffi.cpp"},
		"echo.so":    {"testdata/echo.cpp"},
		"conv.so": {csrc + "kernels/causal_conv1d/cpu/cpu.cpp", csrc + "kernels/causal_conv1d/cpu/long_row.cpp",
			csrc + "kernels/causal_conv1d/cpu/fwd.cpp", csrc + "kernels/causal_conv1d/cpu/bwd.cpp"},
	}
	for name, sources := range units {
		if err := compile(filepath.Join(dir, name), sources...); err != nil {
			return b, err
		}
	}
	if b.support, err = withFile(filepath.Join(dir, "support.so"), ffi.LoadSupport); err != nil {
		return b, err
	}
	if b.echo, err = withFile(filepath.Join(dir, "echo.so"), b.support.Open); err != nil {
		return b, err
	}
	b.conv, err = withFile(filepath.Join(dir, "conv.so"), b.support.Open)
	return b, err
})

// withFile loads the library at path.
func withFile[T any](path string, load func(*os.File) (*T, error)) (*T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return load(f)
}

func compile(out string, sources ...string) error {
	level := map[bool]string{true: "-O0", false: "-O2"}[strings.HasSuffix(out, "conv.so")] // the calls are tested, not the kernels
	args := append(append([]string{}, flags...), level, "-I"+csrc+"include", "-o", out)
	text, err := exec.Command("c++", append(args, sources...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("c++ %v: %w\n%s", sources, err, text)
	}
	return nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if b, _ := setup(); b != nil {
		os.RemoveAll(b.dir)
	}
	os.Exit(code)
}

func open(t testing.TB) *libraries {
	t.Helper()
	b, err := setup()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// call calls an operator of the module; args are tensors, int, bool, float64, nil or packed.
func (b *libraries) call(t testing.TB, m *ffi.Module, s ffi.Stream, op string, args ...any) error {
	t.Helper()
	f, err := m.Func(op)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.support.CallReturning(f, s, pack(t, args))
	runtime.KeepAlive(args)
	return err
}

func pack(t testing.TB, args []any) []ffi.Any {
	t.Helper()
	var packed []ffi.Any
	for _, a := range args {
		switch v := a.(type) {
		case nil:
			packed = append(packed, ffi.None())
		case int:
			packed = append(packed, ffi.Int(int64(v)))
		case bool:
			packed = append(packed, ffi.Bool(v))
		case float64:
			packed = append(packed, ffi.Float(v))
		case *tensor.Tensor:
			packed = append(packed, ffi.Tensor(v))
		case ffi.Any:
			packed = append(packed, v)
		default:
			t.Fatalf("cannot pack %T", a)
		}
	}
	return packed
}

func zeros(t testing.TB, dt tensor.DType, shape ...int64) *tensor.Tensor {
	t.Helper()
	x, err := tensor.New(dt, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func read(t testing.TB, x *tensor.Tensor) []float64 {
	t.Helper()
	v, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDefaultsAndConversions(t *testing.T) {
	b := open(t)
	x := zeros(t, tensor.Float32, 1)
	for _, c := range []struct {
		args []any
		want string
	}{
		{nil, "[-7 1 0]"},
		{[]any{5}, "[5 1 0]"},
		{[]any{true, 0}, "[1 0 0]"},
		{[]any{5, 2, nil}, "[5 1 0]"},
		{[]any{5, false, x}, "[5 0 1]"},
	} {
		out := zeros(t, tensor.Int32, 3)
		if err := b.call(t, b.echo, ffi.Stream{}, "values", append([]any{out}, c.args...)...); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(read(t, out)); got != c.want {
			t.Errorf("values%v: got %s, want %s", c.args, got, c.want)
		}
	}
	for _, v := range []any{2.5, 3, true} {
		if err := b.call(t, b.echo, ffi.Stream{}, "real", x, v); err != nil {
			t.Error(err)
		}
	}
}

// TestTexts passes texts in each form that TVM FFI has, and leaves out arguments with defaults.
func TestTexts(t *testing.T) {
	b := open(t)
	short, none := ffi.Str("seven c")
	long, memory := ffi.Str("eight ch")
	if none != nil || memory == nil {
		t.Fatalf("memory of 7 bytes %v, of 8 bytes %v", none, memory)
	}
	heap := &struct { // TVMFFIObject with a TVMFFIByteArray
		header [24]byte
		data   *byte
		size   uint64
	}{data: memory, size: 5}
	empty, _ := ffi.Str("")
	for _, c := range []struct {
		args []any
		want string
	}{
		{nil, "[-2.5 3 99]"},
		{[]any{1.5}, "[1.5 3 99]"},
		{[]any{1.5, empty}, "[1.5 0 0]"},
		{[]any{3, short}, "[3 7 99]"},
		{[]any{3, long}, "[3 8 104]"},
		{[]any{3, ffi.Any{Type: 65, Bits: uint64(uintptr(unsafe.Pointer(heap)))}}, "[3 5 116]"},
	} {
		out := zeros(t, tensor.Float32, 3)
		if err := b.call(t, b.echo, ffi.Stream{}, "presets", append([]any{out}, c.args...)...); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(read(t, out)); got != c.want {
			t.Errorf("presets%v: got %s, want %s", c.args, got, c.want)
		}
	}
	runtime.KeepAlive(heap)
	runtime.KeepAlive(memory)
}

func TestArgumentErrors(t *testing.T) {
	b := open(t)
	x := zeros(t, tensor.Int32, 3)
	for _, c := range []struct {
		op, kind, want string
		args           []any
	}{
		{"values", "TypeError", "values: expected at least 1 arguments, got 0: 'out' is missing", nil},
		{"values", "TypeError", "values: expected at most 4 arguments, got 5", []any{x, 1, true, nil, nil}},
		{"values", "TypeError", "values: argument 'out': expected Tensor, got int", []any{1}},
		{"values", "TypeError", "values: argument 'out': expected Tensor, got None", []any{nil}},
		{"values", "TypeError", "values: argument 'i': expected int, got Tensor", []any{x, x}},
		{"values", "TypeError", "values: argument 'b': expected bool, got float", []any{x, 1, 1.5}},
		{"values", "TypeError", "values: argument 't': expected Tensor, got bool", []any{x, 1, true, true}},
		{"real", "TypeError", "real: argument 'v': expected float, got Tensor", []any{x, x}},
		{"presets", "TypeError", "presets: argument 's': expected str, got int", []any{x, 1, 1}},
		{"presets", "ValueError", "presets: argument 's': expected str, got a null pointer", []any{x, 1, ffi.Any{Type: ffi.TypeRawStr}}},
		{"fail", "ValueError", "fail: number 12", []any{12}},
		{"silent", "RuntimeError", "silent: returned status -1 without an error", nil},
	} {
		var e *ffi.CallError
		err := b.call(t, b.echo, ffi.Stream{}, c.op, c.args...)
		if !errors.As(err, &e) || e.Kind != c.kind || e.Op != c.op || !strings.HasPrefix(e.Message, c.want) {
			t.Errorf("%s%v: got %v, want %s: %s", c.op, c.args, err, c.kind, c.want)
		}
	}
}

func TestMoreArgumentsThanAFrameHolds(t *testing.T) {
	b := open(t)
	args := make([]any, 40)
	err := b.call(t, b.echo, ffi.Stream{}, "fail", args...)
	if err == nil || !strings.Contains(err.Error(), "got 40") {
		t.Fatalf("got %v", err)
	}
}

func TestStreamIsSetForTheCallAlone(t *testing.T) {
	b := open(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	get := func(s ffi.Stream, id int) float64 {
		out := zeros(t, tensor.Int32, 1)
		if err := b.call(t, b.echo, s, "stream", out, 10, id); err != nil {
			t.Fatal(err)
		}
		return read(t, out)[0]
	}
	set := ffi.Stream{DeviceType: 10, DeviceID: 1, Handle: 77, Set: true}
	for _, c := range []struct {
		stream ffi.Stream
		id     int
		want   float64
	}{{set, 1, 77}, {set, 0, 0}, {ffi.Stream{}, 1, 0}} {
		if got := get(c.stream, c.id); got != c.want {
			t.Errorf("stream %+v, device %d: got %v, want %v", c.stream, c.id, got, c.want)
		}
	}
}

func TestConcurrentErrorsAndStreamsStayApart(t *testing.T) {
	b := open(t)
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 200 {
				n := g*1000 + i + 1
				if err := b.call(t, b.echo, ffi.Stream{}, "fail", n); err == nil || err.Error() != fmt.Sprintf("ValueError: fail: number %d", n) {
					t.Errorf("number %d: got %v", n, err)
				}
				out := zeros(t, tensor.Int32, 1)
				s := ffi.Stream{DeviceType: 2, Handle: uintptr(n), Set: true}
				if err := b.call(t, b.echo, s, "stream", out, 2, 0); err != nil || read(t, out)[0] != float64(n) {
					t.Errorf("stream %d: got %v, %v", n, read(t, out), err)
				}
			}
		})
	}
	wg.Wait()
}

// Modules are bound to the support library that was loaded first. A second copy, for example from
// another cache, must use the same errors and streams.
func TestSecondCopyOfTheSupportLibrary(t *testing.T) {
	b := open(t)
	text, err := os.ReadFile(filepath.Join(b.dir, "support.so"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.so")
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	second, err := withFile(path, ffi.LoadSupport)
	if err != nil {
		t.Fatal(err)
	}
	c := &libraries{support: second}
	if err := c.call(t, b.echo, ffi.Stream{}, "fail", 3); err == nil || err.Error() != "ValueError: fail: number 3" {
		t.Errorf("got %v", err)
	}
	out := zeros(t, tensor.Int32, 1)
	s := ffi.Stream{DeviceType: 2, Handle: 5, Set: true}
	if err := c.call(t, b.echo, s, "stream", out, 2, 0); err != nil || read(t, out)[0] != 5 {
		t.Errorf("stream: got %v, %v", read(t, out), err)
	}
}

func TestLoadErrors(t *testing.T) {
	b := open(t)
	var load *ffi.LoadError
	var open *dl.OpenError
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := withFile(text, b.support.Open); !errors.As(err, &load) || !errors.As(err, &open) || load.Path != text {
		t.Errorf("a module that is not a library: got %v", err)
	}
	var symbol *dl.SymbolError
	if _, err := withFile(filepath.Join(b.dir, "conv.so"), ffi.LoadSupport); !errors.As(err, &load) || !errors.As(err, &symbol) {
		t.Errorf("module as support library: got %v", err)
	}
	var missing *ffi.MissingSymbolError
	_, err := b.echo.Func("absent")
	if !errors.As(err, &missing) || missing.Symbol != "__tvm_ffi_absent" || !strings.Contains(err.Error(), "echo.so") {
		t.Errorf("missing operator: got %v", err)
	}
	if _, err := b.support.CallReturning(ffi.Func{}, ffi.Stream{}, nil); err == nil {
		t.Error("call of no operator: no error")
	}
}

func TestOtherVersionIsRefused(t *testing.T) {
	open(t)
	dir := t.TempDir()
	source, out := filepath.Join(dir, "v.cpp"), filepath.Join(dir, "v.so")
	text := `extern "C" __attribute__((visibility("default"))) int aiter_ffi_version() { return 99; }`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := compile(out, source); err != nil {
		t.Fatal(err)
	}
	var version *ffi.VersionError
	if _, err := withFile(out, ffi.LoadSupport); !errors.As(err, &version) || version.Got != 99 {
		t.Fatalf("got %v", err)
	}
}

// BenchmarkCall measures one call with 8 arguments and the bare call into C.
func BenchmarkCall(b *testing.B) {
	m := open(b)
	x := zeros(b, tensor.Float32, 4)
	args := pack(b, []any{x, x, x, nil, true, 3, 2.5, false})
	f, err := m.echo.Func("noop")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("op", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.support.CallReturning(f, ffi.Stream{}, args); err != nil {
				b.Fatal(err)
			}
		}
	})
	lib, err := dl.Open(dl.Local, filepath.Join(m.dir, "support.so"))
	if err != nil {
		b.Fatal(err)
	}
	bare, err := lib.Sym("aiter_ffi_version")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dl.Call(bare)
		}
	})
	runtime.KeepAlive(x)
}
