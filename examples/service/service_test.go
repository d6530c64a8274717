package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

func TestMain(m *testing.M) { os.Exit(testenv.WithSharedCache(m.Run)) }

func TestRequests(t *testing.T) {
	counts := metrics.New()
	reg, err := registry.Open(t.Context(), registry.Options{Observer: counts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	svc, err := newService(reg, tensor.Host(), counts, defaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	routes := svc.routes()
	if code, _ := ask(routes, "GET", "/ready", ""); code != http.StatusServiceUnavailable {
		t.Errorf("before the build: %d", code)
	}
	if err := svc.warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, _ := ask(routes, "GET", "/ready", ""); code != http.StatusOK {
		t.Errorf("after the build: %d", code)
	}
	if code, text := ask(routes, "GET", "/metrics", ""); code != http.StatusOK || !strings.Contains(text, `aiter_build_info{`) {
		t.Errorf("metrics: %d\n%s", code, text)
	}
	for _, c := range []struct {
		name, body string
		code       int
		want       string
	}{
		{"plain", `{"x": [[[1,2,3,4]]], "weight": [[10,1]]}`, 200, `{"out":[[[1,12,23,34]]]}`},
		{"bias, two of each", `{"x": [[[1,2],[3,4]],[[5,6],[7,8]]], "weight": [[10,1],[0,1]], "bias": [0,1]}`, 200,
			`{"out":[[[1,12],[4,5]],[[5,56],[8,9]]]}`},
		{"SiLU", `{"x": [[[0]]], "weight": [[1]], "silu": true}`, 200, `{"out":[[[0]]]}`},
		{"nothing", `{"x": [], "weight": [[1]]}`, 400, "weight"},
		{"shapes", `{"x": [[[1,2]]], "weight": [[1],[2]]}`, 400, "weight"},
		{"ragged", `{"x": [[[1,2],[3]]], "weight": [[1],[2]]}`, 400, "x: expected lists of equal length"},
		{"ragged batch", `{"x": [[[1,2]],[[3]]], "weight": [[1]]}`, 400, "x: expected lists of equal length"},
		{"no JSON", `{"x": 1}`, 400, "x: json"},
		{"empty", ``, 400, "expected a JSON object"},
		{"list", `[1]`, 400, "expected a JSON object"},
		{"cut off", `{"x": [[[1`, 400, "x: the JSON ends too early"},
		{"cut off between keys", `{"x": [[[1]]]`, 400, "the JSON ends too early"},
		{"text after it", `{"x": [[[1]]], "weight": [[1]]} x`, 400, "nothing after the JSON object, which ends at byte 31"},
		{"another one after it", `{"x": [[[1]]], "weight": [[1]]}{}`, 400, "nothing after the JSON object"},
		{"white space after it", `{"x": [[[1]]], "weight": [[1]]}` + " \r\n\t", 200, `{"out":[[[1]]]}`},
		{"unknown key", `{"x": [[[1]]], "weight": [[1]], "bais": [1]}`, 400, `unknown or repeated key "bais"`},
		{"key in capitals", `{"X": [[[1]]], "weight": [[1]]}`, 400, `unknown or repeated key "X"`},
		{"key twice", `{"x": [[[1]]], "weight": [[1]], "x": [[[2]]]}`, 400, `unknown or repeated key "x"`},
		{"NaN", `{"x": [[[NaN]]], "weight": [[1]]}`, 400, "x: invalid character 'N'"},
		{"Infinity", `{"x": [[[1]]], "weight": [[-Infinity]]}`, 400, "weight: invalid character 'I'"},
		{"too large for float32", `{"x": [[[1e39]]], "weight": [[1]]}`, 400, "x: json: cannot unmarshal number 1e39"},
		{"null for a number", `{"x": [[[null]]], "weight": [[1]]}`, 400, "null is not allowed"},
		{"null for a list", `{"x": [[[1]]], "weight": [[1]], "bias": null}`, 400, "null is not allowed"},
		{"nested too deep", `{"x": ` + strings.Repeat("[", 100_000), 400, "x: "},
		{"a result beyond all numbers", `{"x": [[[3e38]]], "weight": [[10]]}`, 422, "+Inf"},
	} {
		code, body := ask(routes, "POST", "/conv1d", c.body)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: got %d %s, want %d %s", c.name, code, body, c.code, c.want)
		}
	}
}

// warm builds for the device of the service only: this machine also has two GPUs
// without a compiler.
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
	counts := metrics.New()
	reg, err := registry.Open(t.Context(), registry.Options{Observer: counts})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	svc, err := newService(reg, tensor.Host(), counts, defaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if err := svc.warm(t.Context()); err != nil {
		t.Errorf("warm: %v", err)
	}
	if code, body := ask(svc.routes(), "GET", "/ready", ""); code != http.StatusOK {
		t.Errorf("ready: %d %s", code, body)
	}
}

// A service whose code cannot be built ends.
func TestWarmThatFails(t *testing.T) {
	t.Setenv("AITER_JIT_DIR", t.TempDir())
	t.Setenv("CXX", "/nonexistent/c++")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := run(ctx, []string{"-addr", "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "/nonexistent/c++") {
		t.Errorf("got %v, want an error that names the compiler", err)
	}
}

func ask(h http.Handler, method, path, body string) (int, string) {
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, err := http.NewRequest(method, srv.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// The whole program serves, and ends after a signal.
func TestProgram(t *testing.T) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listen.Addr().String()
	if err := listen.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-addr", addr}) }()
	waitFor(t, "http://"+addr+"/ready")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{"-device", "tpu"}, {"-addr", "nowhere:-1"}, {"-unknown"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

// waitFor sends requests until the answer is 200.
func waitFor(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatalf("%s never answered", url)
}
