package buildfarm_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	bspb "google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// flip returns a fault that changes the blobs that the client reads.
func flip(change func([]byte) []byte) fault {
	return fault{answer: func(_ context.Context, method string, m []byte) ([]byte, error) {
		switch method {
		case "BatchReadBlobs":
			return edit(m, new(repb.BatchReadBlobsResponse), func(r *repb.BatchReadBlobsResponse) {
				for _, b := range r.GetResponses() {
					b.Data = change(b.GetData())
				}
			}), nil
		case "Read":
			return edit(m, new(bspb.ReadResponse), func(r *bspb.ReadResponse) { r.Data = change(r.GetData()) }), nil
		}
		return m, nil
	}}
}

// isDone reports whether a message is a finished operation.
func isDone(m []byte) bool {
	var op longrunningpb.Operation
	return proto.Unmarshal(m, &op) == nil && op.GetDone()
}

// TestFaults builds with a farm that fails. Each build gives the library that this machine makes, after a bounded delay.
func TestFaults(t *testing.T) {
	farm := startFarm(t, "")
	want := builtHere(t)
	const longest = 20 * time.Second // the wait, and compiles on a machine that other work loads
	for _, c := range []struct {
		name  string
		fault fault
		cause jit.ExecutorCause // "": the farm gives a result in spite of the fault
	}{
		{"unavailable", unavailable("GetCapabilities"), jit.ExecutorUnreachable},
		{"execution unavailable", unavailable("Execute", "WaitExecution"), jit.ExecutorUnreachable},
		{"no storage", unavailable("FindMissingBlobs"), jit.ExecutorUnreachable},
		{"denied", fault{call: func(context.Context, string) error {
			return status.Error(codes.Unauthenticated, "no token")
		}}, jit.ExecutorDenied},
		{"silent", silent("GetCapabilities"), jit.ExecutorTimeout},
		{"execution silent", silent("Execute"), jit.ExecutorTimeout},
		{"upload stalls", silent("BatchUpdateBlobs"), jit.ExecutorTimeout},
		{"download stalls", silent("BatchReadBlobs"), jit.ExecutorTimeout},
		{"no such blob", fault{call: func(_ context.Context, method string) error {
			if method == "BatchReadBlobs" {
				return status.Error(codes.NotFound, "evicted")
			}
			return nil
		}}, jit.ExecutorDamaged},
		{"flipped bit", flip(func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b }), jit.ExecutorDamaged},
		{"truncated", flip(func(b []byte) []byte { return b[:len(b)/2] }), jit.ExecutorDamaged},
		{"longer", flip(func(b []byte) []byte { return append(bytes.Clone(b), 'x') }), jit.ExecutorDamaged},
		{"no answer", fault{answer: func(_ context.Context, method string, m []byte) ([]byte, error) {
			if method == "Execute" || method == "WaitExecution" {
				return nil, io.EOF
			}
			return m, nil
		}}, jit.ExecutorServer},
		{"silent after the first answer", fault{answer: func(ctx context.Context, method string, m []byte) ([]byte, error) {
			if method == "Execute" && isDone(m) {
				<-ctx.Done()
			}
			return m, nil
		}}, jit.ExecutorTimeout},
		{"connection cut during the compile", fault{answer: func(_ context.Context, method string, m []byte) ([]byte, error) {
			if method == "Execute" && isDone(m) {
				return nil, status.Error(codes.Unavailable, "the connection is closed")
			}
			return m, nil
		}}, ""},
		{"delay", fault{call: func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
			case <-time.After(600 * time.Millisecond): // all calls together take longer than the limit of one
			}
			return ctx.Err()
		}}, ""},
		{"executes nothing", fault{answer: func(_ context.Context, method string, m []byte) ([]byte, error) {
			if method == "GetCapabilities" {
				m = edit(m, new(repb.ServerCapabilities), func(c *repb.ServerCapabilities) { c.ExecutionCapabilities = nil })
			}
			return m, nil
		}}, jit.ExecutorServer},
		{"failure in the cache", fault{answer: func(_ context.Context, method string, m []byte) ([]byte, error) {
			if method == "GetActionResult" {
				m = edit(m, new(repb.ActionResult), func(r *repb.ActionResult) { r.ExitCode = 1 })
			}
			return m, nil
		}}, ""},
		{"empty output in the cache", fault{answer: func(_ context.Context, method string, m []byte) ([]byte, error) {
			if method == "GetActionResult" {
				m = edit(m, new(repb.ActionResult), func(r *repb.ActionResult) { r.OutputFiles = nil })
			}
			return m, nil
		}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, farm.Host)
			p.set(c.fault)
			x := newClient(t, "grpc://"+p.host)
			x.env["AITER_JIT_EXECUTOR_WAIT"] = "4s" // a call on a machine that other work loads takes less
			if c.cause == jit.ExecutorTimeout {
				x.env["AITER_JIT_EXECUTOR_WAIT"] = "1s"
			}
			x.tree.Write("include/value.h", "#define VALUE 3 // "+c.name+"\n") // the farm's cache has no result for this text
			if c.cause == "" && strings.HasSuffix(c.name, "in the cache") {
				p.set(fault{})
				other := newClient(t, "grpc://"+p.host)
				other.tree.Write("include/value.h", "#define VALUE 3 // "+c.name+"\n")
				other.build(small())
				p.set(c.fault)
			}
			start := time.Now()
			got := x.build(small())
			if got.Artifact.Digest != want {
				t.Errorf("the library differs from the one that was built here")
			}
			causes := x.failures()
			switch {
			case c.cause == "" && len(causes) > 0, c.cause != "" && !slices.Contains(causes, c.cause):
				t.Errorf("causes %q, want %q", causes, c.cause)
			case c.cause != "" && strings.Count(x.log.String(), "build farm gave no result") != 1:
				t.Errorf("want one warning, got:\n%s", x.log.String())
			}
			if took := time.Since(start); took > longest {
				t.Errorf("the build took %s, want at most %s", took, longest)
			}
			t.Logf("%s: %q", time.Since(start).Round(10*time.Millisecond), causes)
		})
	}
}

// TestRefused uses the address of a farm that does not run. The first action finds this, the others do not try.
func TestRefused(t *testing.T) {
	x := newClient(t, "grpc://127.0.0.1:1")
	start := time.Now()
	x.build(small())
	causes := x.failures()
	if len(causes) != 3 || !slices.Contains(causes, jit.ExecutorUnreachable) || !slices.Contains(causes, jit.ExecutorSuspended) {
		t.Errorf("causes %q after %s", causes, time.Since(start))
	}
}

// TestNextProcess starts another process after a farm failed. The process queries a farm that failed at once, but not a farm that let a
// command wait.
func TestNextProcess(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   fault
		queried bool
	}{{"failed at once", unavailable("GetCapabilities"), true}, {"silent", silent("GetCapabilities"), false}} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, startFarm(t, "").Host)
			p.set(c.fault)
			x := newClient(t, "grpc://"+p.host)
			if !c.queried {
				x.env["AITER_JIT_EXECUTOR_WAIT"] = "2s"
			}
			x.build(small())
			p.set(fault{})
			x.tree.Write("include/value.h", "#define VALUE 3 // edited\n")
			start := time.Now()
			x.build(small())
			causes := x.failures()
			if queried := p.count("GetCapabilities") > 0; queried != c.queried {
				t.Errorf("the next process queried the farm: %t, want %t; causes %q", queried, c.queried, causes)
			}
			var want []jit.ExecutorCause
			if !c.queried {
				want = []jit.ExecutorCause{jit.ExecutorSuspended, jit.ExecutorSuspended} // of the two compiles
			}
			if !slices.Equal(causes, want) {
				t.Errorf("causes %q after %s, want %q", causes, time.Since(start), want)
			}
		})
	}
}

// TestStopped stops the server while a client waits for it.
func TestStopped(t *testing.T) {
	farm := startFarm(t, "")
	p := newProxy(t, farm.Host)
	p.set(fault{request: func(method string, _ []byte) []byte {
		if method == "Execute" {
			_ = farm.Process().Kill()
		}
		return nil
	}})
	x := newClient(t, "grpc://"+p.host)
	x.build(small())
	if causes := x.failures(); !slices.Contains(causes, jit.ExecutorUnreachable) {
		t.Errorf("causes %q", causes)
	}
}

// TestPoisonedCache gives a client the result of another source, with right digests of all blobs. The list of files that the worker read
// has another header than the client, so the client makes the farm run the compile again.
func TestPoisonedCache(t *testing.T) {
	farm := startFarm(t, "")
	p := newProxy(t, farm.Host)
	var mu sync.Mutex
	results := map[int][]byte{} // of units, by the number of outputs
	p.set(fault{answer: func(_ context.Context, method string, m []byte) ([]byte, error) {
		if method == "GetActionResult" {
			mu.Lock()
			defer mu.Unlock()
			var r repb.ActionResult
			if proto.Unmarshal(m, &r) == nil {
				results[len(r.GetOutputFiles())] = m
			}
		}
		return m, nil
	}})
	newClient(t, "grpc://"+farm.Host).build(small())
	newClient(t, "grpc://"+p.host).build(small()) // reads what the first one made
	if len(results) == 0 {
		t.Fatal("no result was taken from the farm's cache")
	}
	p.set(fault{request: func(method string, _ []byte) []byte {
		if method != "GetActionResult" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for n, m := range results {
			if n > 1 { // of a compile
				return m
			}
		}
		return nil
	}})
	edited := newClient(t, "grpc://"+p.host)
	edited.tree.Write("include/value.h", "#define VALUE 4\n")
	got := edited.build(small())
	here := newClient(t, "")
	here.tree.Write("include/value.h", "#define VALUE 4\n")
	if want := here.build(small()); got.Artifact.Digest != want.Artifact.Digest {
		t.Error("the library has the code of another source")
	}
	if f := edited.failures(); len(f) > 0 || p.count("Execute") != 3 {
		t.Errorf("failures %q, %d executions; want 3: each remembered result is useless", f, p.count("Execute"))
	}
}

// TestOtherToolchain uses workers with another compiler.
func TestOtherToolchain(t *testing.T) {
	root := rootOf(t, "hipcc", "rocm")
	x := newClient(t, "grpc://"+startFarm(t, root).Host)
	got := x.build(small())
	if causes := x.failures(); len(causes) != 3 || slices.Max(causes) != jit.ExecutorToolchain || slices.Min(causes) != jit.ExecutorToolchain {
		t.Errorf("causes %q, want toolchain only", causes)
	}
	if got.Artifact.Digest != builtHere(t) {
		t.Error("the library differs from the one that was built here")
	}
}

// TestErrorInSource fails to compile on the farm. The error is that of the compiler on this machine.
func TestErrorInSource(t *testing.T) {
	x := newClient(t, "grpc://"+startFarm(t, "").Host)
	x.tree.Write("src/b.cpp", "#error wrong value\n")
	_, err := x.manager().Build(t.Context(), small())
	if err == nil || !strings.Contains(err.Error(), "wrong value") {
		t.Errorf("error %v", err)
	}
	if causes := x.failures(); len(causes) == 0 || causes[0] != jit.ExecutorFailed {
		t.Errorf("causes %q", causes)
	}
}

// TestSentFiles checks that the farm gets the folders that the module declares, and nothing else of the tree.
func TestSentFiles(t *testing.T) {
	testenv.Tool(t, "buildbox-casd")
	p := newProxy(t, startFarm(t, "").Host)
	var mu sync.Mutex
	names, sent := map[string]bool{}, 0
	p.set(fault{request: func(method string, m []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Contains(m, []byte("SECRET")) {
			t.Errorf("%s sends a file of another folder", method)
		}
		var r repb.BatchUpdateBlobsRequest
		if method != "BatchUpdateBlobs" || proto.Unmarshal(m, &r) != nil {
			return nil
		}
		for _, b := range r.GetRequests() {
			sent++
			var d repb.Directory
			if proto.Unmarshal(b.GetData(), &d) == nil {
				for _, f := range d.GetFiles() {
					names[f.GetName()] = true
				}
			}
		}
		return nil
	}})
	x := newClient(t, "grpc://"+p.host)
	for _, name := range []string{"secret/key.pem", "key.pem", "src/.git/config", "config/key.toml"} {
		x.tree.Write(name, "SECRET of "+name)
	}
	x.tree.Write("src/unused.h", "// declared by its folder\n")
	x.build(small())
	if f := x.failures(); len(f) > 0 || sent == 0 {
		t.Fatalf("failures %q, %d blobs", f, sent)
	}
	for _, name := range []string{"a.cpp", "b.cpp", "value.h", "unused.h"} {
		if !names[name] {
			t.Errorf("%s was not sent", name)
		}
	}
	// For a unit with a dependency list the client sends only the files of the list.
	clear(names)
	x.tree.Write("src/a.cpp", source+"// edited\n")
	x.build(small())
	if f := x.failures(); len(f) > 0 || !names["a.cpp"] || names["unused.h"] {
		t.Errorf("failures %q, sent %v; want the files of the dependency list", f, names)
	}
	// The list does not have a new header, so the client sends the declared folders again.
	x.tree.Write("include/more.h", "#define MORE 1\n")
	x.tree.Write("src/a.cpp", source+"#include \"more.h\"\n")
	x.build(small())
	if f := x.failures(); len(f) > 0 || !names["more.h"] {
		t.Errorf("failures %q, sent %v; want more.h", f, names)
	}
}

// TestHeaderThatDecides uses __has_include for a header that the source does not include. The header appears after the first build.
func TestHeaderThatDecides(t *testing.T) {
	x := newClient(t, "grpc://"+startFarm(t, "").Host)
	text := "#if __has_include(\"extra.h\")\nint b = 1;\n#else\nint b = 2;\n#endif\n"
	x.tree.Write("src/b.cpp", text)
	before := x.build(small())
	x.tree.Write("include/extra.h", "")
	got := x.build(small())
	here := newClient(t, "")
	here.tree.Write("src/b.cpp", text)
	here.tree.Write("include/extra.h", "")
	if want := here.build(small()); got.Artifact.Digest != want.Artifact.Digest || got.Artifact.Digest == before.Artifact.Digest {
		t.Errorf("the library is that of a source without the header; failures %q", x.failures())
	}
	if f := x.failures(); len(f) > 0 {
		t.Errorf("failures %q", f)
	}
}
