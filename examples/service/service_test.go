package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// asProgram is an environment variable. If it is set, the test binary runs as the service, for the tests of signals.
const asProgram = "AITER_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(testenv.WithSharedCache(m.Run))
}

// set has the tensors of a request or of an answer, by name.
type set = map[string]*tensor.Tensor

// values returns a float32 tensor.
func values(t testing.TB, numbers []float32, shape ...int64) *tensor.Tensor {
	t.Helper()
	x, err := tensor.Of(numbers, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// pattern returns a tensor in which neighbouring elements differ.
func pattern(t testing.TB, dt tensor.DType, seed int, shape ...int64) *tensor.Tensor {
	t.Helper()
	x, err := tensor.New(dt, shape...)
	if err != nil {
		t.Fatal(err)
	}
	numbers := make([]float64, x.Numel())
	for i := range numbers {
		numbers[i] = float64((i+seed)*37%101)/64 - 0.75
	}
	if err := x.SetFloat64s(numbers); err != nil {
		t.Fatal(err)
	}
	return x
}

func encode(t testing.TB, f api.Format, tensors set) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := f.Encode(&b, tensors, api.X); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// open makes a service on the CPU, which is not ready. It is stopped when the test ends.
func open(t testing.TB, l limits, o registry.Options) *service {
	t.Helper()
	own, err := newFilters(values(t, []float32{10, 1, 0, 1}, 2, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	return openWith(t, own, l, o)
}

// openWith makes a service with the given filters; nil: requests have their own.
func openWith(t testing.TB, own *filters, l limits, o registry.Options) *service {
	t.Helper()
	counts := metrics.New()
	o.Observer = counts
	reg, err := registry.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	svc, err := newService(reg, tensor.Host(), own, counts, o.Trace, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		svc.batches.stop()
		if err := reg.Close(); err != nil {
			t.Error(err)
		}
	})
	return svc
}

func TestRequests(t *testing.T) {
	s, each := start(t, shortLimits(), registry.Options{}), listen(t, openWith(t, nil, shortLimits(), registry.Options{}))
	x := values(t, []float32{1, 3, 2, 4, 3, 5}, 3, 2) // positions, channels
	column, err := values(t, []float32{1, 2, 3, 3, 4, 5}, 2, 3).Transpose(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	weight, bias := values(t, []float32{10, 1, 0, 1}, 2, 2), values(t, []float32{100, 200}, 2)
	zeros := func(dt tensor.DType, shape ...int64) *tensor.Tensor {
		z, err := tensor.New(dt, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	plain := encode(t, api.Safetensors, set{"x": x})
	st, np := string(api.Safetensors), string(api.NPY)
	for _, c := range []struct {
		name, kind, accept, query string
		body                      []byte
		code                      int
		want                      string
	}{
		{"own filters", st, "", "", plain, 200, "out [1 3 12 4 23 5] [3 2] final_states [3 5] [2 1]"},
		{"npy", np, "", "", encode(t, api.NPY, set{"x": x}), 200, "out [1 3 12 4 23 5] [3 2]"},
		{"npy in Fortran order", np, "*/*", "", fortran(t, column), 200, "out [1 3 12 4 23 5] [3 2]"},
		{"npy for safetensors", np, "text/html, " + st + ";q=0.5", "", encode(t, api.NPY, set{"x": x}), 200, "final_states [3 5] [2 1]"},
		{"a type with parameters", np + "; version=1", "", "", encode(t, api.NPY, set{"x": x}), 200, "out [1 3"},
		{"filters and bias", st, "", "activation=none", encode(t, api.Safetensors, set{"x": x, "weight": weight, "bias": bias}), 200,
			"out [101 203 112 204 123 205] [3 2]"},
		{"one filter for all channels", st, "", "", encode(t, api.Safetensors, set{"x": x, "weight": values(t, []float32{2}, 1, 1)}), 200,
			"out [2 6 4 8 6 10] [3 2] final_states [] [2 0]"},
		{"SiLU", st, "", "activation=silu", encode(t, api.Safetensors, set{"x": x, "weight": weight, "bias": bias}), 200, "out [101 203 112"},
		{"states", st, "", "", encode(t, api.Safetensors, set{"x": x, "initial_states": values(t, []float32{7, 9}, 2, 1)}), 200,
			"out [71 3 12 4 23 5] [3 2] final_states [3 5] [2 1]"},
		{"a batch", st, "", "", encode(t, api.Safetensors, set{"x": values(t, []float32{1, 3, 2, 4}, 2, 1, 2),
			"initial_states": values(t, []float32{7, 9, 1, 1}, 2, 2, 1)}), 200, "out [71 3 12 4] [2 1 2] final_states [1 3 2 4] [2 2 1]"},

		{"JSON", "application/json", "", "", []byte("{}"), 415, "Content-Type: expected application/x-npy or application/x-safetensors"},
		{"no type", "", "", "", plain, 415, "Content-Type"},
		{"another answer", st, "text/html", "", plain, 406, "Accept: expected"},
		{"activation", st, "", "activation=relu", plain, 400, `activation: expected silu or none, got "relu"`},
		{"nothing", st, "", "", nil, 400, "header"},
		{"cut off", st, "", "", plain[:len(plain)-1], 400, "ends at byte 24"},
		{"npy cut off", np, "", "", encode(t, api.NPY, set{"x": x})[:140], 400, "npy: data of float32[3 2]: unexpected EOF"},
		{"bytes after npy", np, "", "", append(encode(t, api.NPY, set{"x": x}), 1), 400, "1 bytes more"},
		{"a long header", st, "", "", append([]byte{1, 0, 1, 0, 0, 0, 0, 0}, make([]byte, 1<<17)...), 400,
			"header has 65537 bytes, expected at most 65536"},
		{"no x", st, "", "", encode(t, api.Safetensors, set{"weight": weight}), 400, "x: expected (seqlen, dim)"},
		{"an unknown name", st, "", "", encode(t, api.Safetensors, set{"x": x, "wieght": weight}), 400, `"wieght": expected the names x, weight`},
		{"x of integers", st, "", "", encode(t, api.Safetensors, set{"x": zeros(tensor.Int32, 3, 2)}), 400, "got int32[3 2]"},
		{"x of rank 1", st, "", "", encode(t, api.Safetensors, set{"x": zeros(tensor.Float32, 3)}), 400, "got float32[3]"},
		{"no position", st, "", "", encode(t, api.Safetensors, set{"x": zeros(tensor.Float32, 1<<20, 0, 2)}), 400, "at least 1 position"},
		{"three channels", st, "", "", encode(t, api.Safetensors, set{"x": zeros(tensor.Float32, 2, 3)}), 400, "divides the 3 channels of x"},
		{"filters besides those of the service", st, "", "", encode(t, api.Safetensors, set{"x": x, "weight": weight}), 400,
			"expected none, because the service has its own"},
		{"bias besides the filters of the service", st, "", "", encode(t, api.Safetensors, set{"x": x, "bias": bias}), 400, "expected none"},
		{"bias without weight", st, "", "", encode(t, api.Safetensors, set{"x": x, "bias": bias, "weight": zeros(tensor.Float32, 0, 2)}), 400,
			"weight: expected (groups, width)"},
		{"a short bias", st, "", "", encode(t, api.Safetensors, set{"x": x, "weight": weight, "bias": zeros(tensor.Float32, 1)}), 400,
			"bias: expected 2 values, one for each channel of x, got float32[1]"},
		{"states of another type", st, "", "", encode(t, api.Safetensors, set{"x": x, "initial_states": zeros(tensor.Float16, 2, 1)}), 400,
			"initial_states: expected float32[2 1], got float16[2 1]"},
		{"states of another width", st, "", "", encode(t, api.Safetensors, set{"x": x, "initial_states": zeros(tensor.Float32, 2, 2)}), 400,
			"initial_states: expected float32[2 1], got float32[2 2]"},
		{"states that need too much", st, "", "", encode(t, api.Safetensors, set{"x": zeros(tensor.Float32, 20_000, 1, 1),
			"weight": zeros(tensor.Float32, 1, 20_000)}), 413, "more memory than the service has"},
	} {
		to := s
		if bytes.Contains(c.body, []byte(`"weight"`)) && !strings.HasSuffix(c.name, "of the service") {
			to = each
		}
		code, header, body := to.send(t, c.kind, c.accept, c.query, c.body)
		text := string(body)
		if code == http.StatusOK {
			text = printed(t, header, body)
		}
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: got %d %.200s, want %d %s", c.name, code, text, c.code, c.want)
		}
	}
	for path, want := range map[string]int{
		"/v1/conv1d": 405, "/nothing": 404, "/debug/trace?seconds=1": 404, "/healthz": 200, "/readyz": 200,
	} {
		if code, _ := s.get(t, path); code != want {
			t.Errorf("GET %s: %d, want %d", path, code, want)
		}
	}
	s.checkFree(t)
	each.checkFree(t)
}

// fortran writes the transposed view of a row-major (2, 3) tensor as NumPy writes an array in Fortran order.
func fortran(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	back, err := x.Transpose(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	text := encode(t, api.NPY, set{"x": back})
	text = bytes.Replace(text, []byte("'fortran_order': False"), []byte("'fortran_order': True "), 1)
	return bytes.Replace(text, []byte("(2, 3)"), []byte("(3, 2)"), 1)
}

// printed returns the values and shapes of an answer's tensors as text.
func printed(t *testing.T, kind string, body []byte) string {
	t.Helper()
	tensors, err := api.Format(kind).Decode(body, api.Out)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range []string{api.Out, api.Final} {
		if tensors[name] == nil {
			continue
		}
		numbers, err := tensors[name].Float64s()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s %v %v ", name, numbers, tensors[name].Shape())
	}
	return text.String()
}

// The service is not ready before warm has checked its calls. Then it serves metrics and traces.
func TestReady(t *testing.T) {
	rec := trace.New(trace.Options{})
	rec.Pause()
	s := listen(t, open(t, shortLimits(), registry.Options{Trace: rec}))
	for path, want := range map[string]int{"/readyz": 503, "/healthz": 200} {
		if code, text := s.get(t, path); code != want {
			t.Errorf("before the build: %s: %d %s", path, code, text)
		}
	}
	if err := s.warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, _ := s.get(t, "/readyz"); code != http.StatusOK {
		t.Errorf("after the build: %d", code)
	}
	_, text := s.get(t, "/metrics")
	for _, want := range []string{"aiter_build_info{", `aiter_pool_held_bytes{device="cpu",memory="pinned"} `, "conv1d_waiting 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s\n%s", want, text)
		}
	}
	for _, seconds := range []string{"", "0", "-1", "31", "NaN", "x"} {
		if code, _ := s.get(t, "/debug/trace?seconds="+seconds); code != http.StatusBadRequest {
			t.Errorf("a trace of %q seconds: %d, want 400", seconds, code)
		}
	}
	done := make(chan string)
	go func() {
		_, text := s.get(t, "/debug/trace?seconds=0.3")
		done <- text
	}()
	for line := ""; line == ""; {
		s.send(t, string(api.Safetensors), "", "", encode(t, api.Safetensors, set{"x": pattern(t, tensor.Float32, 0, 4, 2)}))
		select {
		case line = <-done:
			for _, want := range []string{"request", "pack", operator, "answer"} {
				if !strings.Contains(line, want) {
					t.Errorf("the trace lacks %q", want)
				}
			}
		default:
		}
	}
	if rec.Recording() || len(rec.Timeline().Spans) > 0 {
		t.Error("the recorder is recording after the trace")
	}
}

// A service whose results are wrong does not become ready: here the answers are those of other filters.
func TestVerify(t *testing.T) {
	svc := open(t, shortLimits(), registry.Options{})
	right := svc.call
	svc.call = func(ctx context.Context, list []*request) error {
		other, err := newFilters(values(t, []float32{10, 1, 0, 1.5}, 2, 2), nil)
		if err != nil {
			return err
		}
		list[0].filters = other
		return right(ctx, list)
	}
	const want = "check a call with float32 on cpu: out"
	if err := svc.warm(t.Context()); err == nil || svc.ready.Load() || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error of the check", err)
	}
}

// warm builds for the service's device only. In this test the machine also has two GPUs of a
// fake driver, for which there is no compiler.
func TestWarmIsForTheDevice(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on PATH")
	}
	dir := t.TempDir()
	out, err := exec.Command(cc, "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-o", filepath.Join(dir, "libcuda.so.1"),
		"../../device/testdata/fakecuda.c").CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	t.Setenv("CUDA_DRIVER_PATH", dir)
	t.Setenv("NVCC", "/nonexistent/nvcc")
	svc := openWith(t, nil, shortLimits(), registry.Options{})
	if err := svc.warm(t.Context()); err != nil || !svc.ready.Load() {
		t.Errorf("warm: %v, ready %v", err, svc.ready.Load())
	}
}

// A service ends with an error if its code cannot be built.
func TestWarmThatFails(t *testing.T) {
	t.Setenv("AITER_JIT_DIR", t.TempDir())
	t.Setenv("CXX", "/nonexistent/c++")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := run(ctx, []string{"-addr", "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "/nonexistent/c++") {
		t.Errorf("got %v, want an error that names the compiler", err)
	}
}

func TestFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights.safetensors")
	if err := os.WriteFile(file, encode(t, api.Safetensors, set{"bias": pattern(t, tensor.Float32, 0, 4)}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"-device tpu", "tpu"}, {"-addr localhost:-1", "invalid port"}, {"-unknown", "unknown"}, {"-weights /nonexistent", "/nonexistent"},
		{"-weights " + file, "weight: expected (groups, width) of float32, float16 or bfloat16, got none"},
	} {
		if err := run(t.Context(), strings.Fields(c.args)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %s", c.args, err, c.want)
		}
	}
}
