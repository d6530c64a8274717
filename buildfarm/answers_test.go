package buildfarm_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	bspb "google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/aiter-go/aiter/buildfarm"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

// open opens an executor with a cache of its own. env has further variables, or another AITER_JIT_EXECUTOR_WAIT.
func open(t *testing.T, address string, env map[string]string) (jit.Executor, error) {
	t.Helper()
	store, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"AITER_JIT_EXECUTOR_WAIT": "10s"} // a call on a machine that other work loads takes less
	maps.Copy(all, env)
	return buildfarm.Open(jit.ExecutorOptions{
		Address: address, Cache: store, Getenv: func(name string) string { return all[name] }, Logger: slog.New(slog.DiscardHandler),
	})
}

// TestSettings opens executors with wrong variables. No connection is opened.
func TestSettings(t *testing.T) {
	files := t.TempDir()
	newCertificate(t, files, "client", nil)
	// certs makes a folder with copies of files; "" stands for a file without a certificate.
	certs := func(from map[string]string) string {
		dir := t.TempDir()
		for name, of := range from {
			data := []byte("none")
			if of != "" {
				var err error
				if data, err = os.ReadFile(filepath.Join(files, of)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "ca.crt"), 0o700); err != nil {
		t.Fatal(err)
	}
	pair := map[string]string{"ca.crt": "client.crt", "client.cert": "client.cert", "client.key": "client.key"}
	const farm, expected = "grpcs://farm.example:8980", "expected grpcs://HOST:PORT or grpcs://HOST:PORT/INSTANCE"
	for _, c := range []struct{ address, variable, value, want string }{
		{farm + "/kernels", "AITER_JIT_EXECUTOR_PLATFORM", "OSFamily=linux, container-image=docker://x", ""},
		{farm, "AITER_JIT_EXECUTOR_CERTS", certs(pair), ""},
		{farm, "AITER_JIT_EXECUTOR_CERTS", t.TempDir(), ""},
		{"grpcs://farm.example", "", "", `AITER_JIT_EXECUTOR is "grpcs://farm.example": ` + expected},
		{"https://farm.example:8980", "", "", expected},
		{farm + "?token=x", "", "", expected},
		{"grpcs://user@farm.example:8980", "", "", expected},
		{"grpc://farm.example:8980", "", "", "grpc:// has no TLS and is for a farm on this machine; use grpcs://"},
		{farm, "AITER_JIT_EXECUTOR_WAIT", "soon", `AITER_JIT_EXECUTOR_WAIT is "soon": expected a time above 0, such as 2m`},
		{farm, "AITER_JIT_EXECUTOR_WAIT", "0s", "expected a time above 0, such as 2m"},
		{farm, "AITER_JIT_EXECUTOR_PLATFORM", "a=b,x", `expected NAME=VALUE,..., got "x"`},
		{farm, "AITER_JIT_EXECUTOR_PLATFORM", "=linux", `got "=linux"`},
		{farm, "AITER_JIT_EXECUTOR_TOKEN", "/nowhere", `AITER_JIT_EXECUTOR_TOKEN is "/nowhere": stat /nowhere: no such file`},
		{farm, "AITER_JIT_EXECUTOR_CERTS", certs(map[string]string{"ca.crt": ""}), "ca.crt has no certificate in PEM"},
		{farm, "AITER_JIT_EXECUTOR_CERTS", folder, "is a directory"},
		{farm, "AITER_JIT_EXECUTOR_CERTS", certs(map[string]string{"client.cert": "client.cert"}), "client.key: no such file"},
		{farm, "AITER_JIT_EXECUTOR_CERTS", certs(map[string]string{"client.cert": "", "client.key": "client.key"}), "find any PEM data"},
	} {
		x, err := open(t, c.address, map[string]string{c.variable: c.value})
		if c.want == "" && (err != nil || x == nil) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, %s=%s: %v, want %q", c.address, c.variable, c.value, err, c.want)
		}
	}
}

// copying returns a command that copies an input of so many bytes to an output. No cache has its result.
func copying(t *testing.T, size int) jit.RemoteCommand {
	return jit.RemoteCommand{
		Script: "mkdir -p out && cat sub/in >out/copy", Environ: []string{"PATH=/usr/bin:/bin"}, Outputs: []string{"copy"},
		Inputs:  map[string][]byte{"sub/in": bytes.Repeat([]byte(t.Name()), size/len(t.Name())+1)},
		Timeout: time.Minute, Dir: t.TempDir(),
	}
}

// large is a number of bytes that does not fit into one message, so that blobs are sent as streams.
const large = 4 << 20

// of returns a fault that changes the messages of a method that have the type of M.
func of[M any, P interface {
	*M
	proto.Message
}](method string, change func(P)) fault {
	return fault{answer: func(_ context.Context, got string, m []byte) ([]byte, error) {
		if got == method {
			m = edit(m, P(new(M)), change)
		}
		return m, nil
	}}
}

// ofResponse returns a fault that changes the response of a finished execution.
func ofResponse(change func(*repb.ExecuteResponse)) fault {
	return of("Execute", func(op *longrunningpb.Operation) {
		resp := new(repb.ExecuteResponse)
		if !op.GetDone() || op.GetResponse().UnmarshalTo(resp) != nil {
			return
		}
		change(resp)
		packed, _ := anypb.New(resp) // the message is valid
		op.Result = &longrunningpb.Operation_Response{Response: packed}
	})
}

// failing returns a fault that fails the calls of a method.
func failing(method string, code codes.Code, text string) fault {
	return fault{call: func(_ context.Context, got string) error {
		if got == method {
			return status.Error(code, text)
		}
		return nil
	}}
}

// TestAnswers executes commands on a farm with wrong answers. Each error names the call, the expected and the actual answer.
func TestAnswers(t *testing.T) {
	farm := startFarm(t, "")
	const other = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	lost := status.New(codes.NotFound, "evicted").Proto()
	for _, c := range []struct {
		name  string
		size  int // of input and output, in bytes
		fault fault
		cause jit.ExecutorCause // "": the command succeeds
		want  string            // HOST stands for the farm's
	}{
		{"small", 1000, fault{}, "", ""},
		{"large", large, fault{}, "", ""},
		{"other digests", 1, of("GetCapabilities", func(c *repb.ServerCapabilities) {
			c.CacheCapabilities.DigestFunctions = []repb.DigestFunction_Value{repb.DigestFunction_SHA512}
		}), jit.ExecutorServer, "GetCapabilities at HOST: it has the digest functions [SHA512], expected SHA256"},
		{"later API", 1, of("GetCapabilities", func(c *repb.ServerCapabilities) { c.LowApiVersion.Major = 3 }),
			jit.ExecutorServer, "GetCapabilities at HOST: it serves version 3 and above of the API, expected 2"},
		{"cache alone", 1, of("GetCapabilities", func(c *repb.ServerCapabilities) { c.ExecutionCapabilities = nil }),
			jit.ExecutorServer, "it has a cache but executes no commands; set AITER_JIT_EXECUTOR to the address of a build farm"},
		{"unknown blob", 1, of("FindMissingBlobs", func(r *repb.FindMissingBlobsResponse) {
			r.MissingBlobDigests = append(r.MissingBlobDigests, &repb.Digest{Hash: other, SizeBytes: 1})
		}), jit.ExecutorServer, "FindMissingBlobs at HOST: the answer names the blob " + other + ", which the query did not contain"},
		{"blob refused", 1, of("BatchUpdateBlobs", func(r *repb.BatchUpdateBlobsResponse) {
			r.Responses[0].Status = status.New(codes.ResourceExhausted, "disk is full").Proto()
		}), jit.ExecutorUnreachable, "BatchUpdateBlobs at HOST: rpc error: code = ResourceExhausted desc = disk is full"},
		{"part stored", large, of("Write", func(r *bspb.WriteResponse) { r.CommittedSize = 7 }),
			jit.ExecutorServer, "ByteStream.Write at HOST: it stored 7 of "},
		{"write refused", large, failing("Write", codes.PermissionDenied, "read only"),
			jit.ExecutorDenied, "ByteStream.Write at HOST: rpc error: code = PermissionDenied desc = read only"},
		{"no blob", 1, of("BatchReadBlobs", func(r *repb.BatchReadBlobsResponse) { r.Responses = nil }),
			jit.ExecutorDamaged, "BatchReadBlobs at HOST gave 0 blobs, expected 1"},
		{"blob lost", 1, of("BatchReadBlobs", func(r *repb.BatchReadBlobsResponse) { r.Responses[0].Status, r.Responses[0].Data = lost, nil }),
			jit.ExecutorDamaged, "BatchReadBlobs at HOST: blob "},
		{"large blob lost", large, failing("Read", codes.NotFound, "evicted"),
			jit.ExecutorDamaged, "ByteStream.Read at HOST: blob "},
		{"large blob longer", large, of("Read", func(r *bspb.ReadResponse) { r.Data = append(r.Data, 'x') }),
			jit.ExecutorDamaged, "the blob is longer than its digest declares"},
		{"large blob stalls", large, silent("Read"), jit.ExecutorTimeout, "the server sent nothing for 3s"},
		{"huge output", 1, ofResponse(func(r *repb.ExecuteResponse) { r.Result.OutputFiles[0].Digest.SizeBytes = 3 << 30 }),
			jit.ExecutorDamaged, "an output of 3221225472 bytes, expected at most 2147483648"},
		{"no output", 1, ofResponse(func(r *repb.ExecuteResponse) { r.Result.OutputFiles = nil }),
			jit.ExecutorDamaged, "the result at HOST has no copy"},
		{"failed operation", 1, of("Execute", func(op *longrunningpb.Operation) {
			if op.GetDone() {
				op.Result = &longrunningpb.Operation_Error{Error: status.New(codes.Internal, "worker lost").Proto()}
			}
		}), jit.ExecutorServer, "Execute at HOST: rpc error: code = Internal desc = worker lost"},
		{"other response", 1, of("Execute", func(op *longrunningpb.Operation) {
			if op.GetDone() {
				op.Result = &longrunningpb.Operation_Response{Response: &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.Status"}}
			}
		}), jit.ExecutorServer, "mismatched message type: got \"build.bazel.remote.execution.v2.ExecuteResponse\""},
		{"time limit of the worker", 1, ofResponse(func(r *repb.ExecuteResponse) {
			r.Status = status.New(codes.DeadlineExceeded, "60 s").Proto()
		}), jit.ExecutorFailed, "Execute at HOST: rpc error: code = DeadlineExceeded desc = 60 s"},
		{"canceled by the farm", 1, ofResponse(func(r *repb.ExecuteResponse) {
			r.Status = status.New(codes.Canceled, "shutdown").Proto()
		}), jit.ExecutorCanceled, "Execute at HOST: rpc error: code = Canceled desc = shutdown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, farm.Host)
			p.set(c.fault)
			wait := map[string]string{}
			if c.cause == jit.ExecutorTimeout {
				wait["AITER_JIT_EXECUTOR_WAIT"] = "3s"
			}
			x, err := open(t, "grpc://"+p.host, wait)
			if err != nil {
				t.Fatal(err)
			}
			command := copying(t, c.size)
			_, err = x.Execute(t.Context(), command)
			copied, _ := os.ReadFile(filepath.Join(command.Dir, "copy"))
			if c.cause == "" {
				if err != nil || !bytes.Equal(copied, command.Inputs["sub/in"]) {
					t.Errorf("%v; %d bytes were copied", err, len(copied))
				}
				return
			}
			want := strings.ReplaceAll(c.want, "HOST", p.host)
			var failed *jit.ExecutorError
			if !errors.As(err, &failed) || failed.Cause != c.cause || !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nwant the cause %s and %q", err, c.cause, want)
			}
			if len(copied) > 0 {
				t.Error("an output was left behind")
			}
		})
	}
}

// TestLostInput executes a command with a farm that drops the inputs between the upload and the execution. The client sends them again.
func TestLostInput(t *testing.T) {
	p := newProxy(t, startFarm(t, "").Host)
	var calls atomic.Int64
	p.set(fault{call: func(_ context.Context, method string) error {
		if method == "Execute" && calls.Add(1) == 1 {
			return status.Error(codes.FailedPrecondition, "blob is missing")
		}
		return nil
	}})
	x, err := open(t, "grpc://"+p.host, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Execute(t.Context(), copying(t, 10)); err != nil || p.count("FindMissingBlobs") != 2 || calls.Load() != 2 {
		t.Errorf("%v, %d uploads, %d executions; want 2 of each", err, p.count("FindMissingBlobs"), calls.Load())
	}
}

// TestWrongCommands executes commands that no worker can run.
func TestWrongCommands(t *testing.T) {
	farm := startFarm(t, "")
	for _, c := range []struct {
		name   string
		change func(*jit.RemoteCommand)
		cause  jit.ExecutorCause
		want   string
	}{
		{"absolute input", func(c *jit.RemoteCommand) { c.Inputs["/etc/passwd"] = nil }, jit.ExecutorInputs,
			`input "/etc/passwd": expected a relative path`},
		{"input above", func(c *jit.RemoteCommand) { c.Inputs["sub/../../x"] = nil }, jit.ExecutorInputs, "expected a relative path"},
		{"exit status", func(c *jit.RemoteCommand) { c.Script = "echo broken >&2; exit 3" }, jit.ExecutorFailed,
			"exit status 3 on the worker: broken"},
		{"other toolchain", func(c *jit.RemoteCommand) { c.Script = "exit 90" }, jit.ExecutorToolchain, "exit status 90 on the worker"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := open(t, "grpc://"+farm.Host, nil)
			if err != nil {
				t.Fatal(err)
			}
			command := copying(t, 10)
			c.change(&command)
			_, err = x.Execute(t.Context(), command)
			var failed *jit.ExecutorError
			if !errors.As(err, &failed) || failed.Cause != c.cause || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant the cause %s and %q", err, c.cause, c.want)
			}
		})
	}
}

// TestTokenRemoved removes the file of the token after the executor was opened.
func TestTokenRemoved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := open(t, "grpc://"+startFarm(t, "").Host, map[string]string{"AITER_JIT_EXECUTOR_TOKEN": file})
	if err == nil {
		err = os.Remove(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.Execute(t.Context(), copying(t, 10))
	var failed *jit.ExecutorError
	want := "AITER_JIT_EXECUTOR_TOKEN: open " + file
	if !errors.As(err, &failed) || failed.Cause != jit.ExecutorDenied || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want the cause %s and the file", err, jit.ExecutorDenied)
	}
}

// TestTokenRemovedDuringUpload removes the file of the token before the client opens the stream for a large input.
func TestTokenRemovedDuringUpload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, startFarm(t, "").Host)
	p.set(fault{answer: func(_ context.Context, method string, m []byte) ([]byte, error) {
		if method != "FindMissingBlobs" {
			return m, nil
		}
		return m, os.Remove(file)
	}})
	x, err := open(t, "grpc://"+p.host, map[string]string{"AITER_JIT_EXECUTOR_TOKEN": file})
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.Execute(t.Context(), copying(t, large))
	var failed *jit.ExecutorError
	denied := errors.As(err, &failed) && failed.Cause == jit.ExecutorDenied && p.count("Write") == 0
	call, name := "ByteStream.Write at "+p.host+": ", "AITER_JIT_EXECUTOR_TOKEN: open "+file
	if !denied || !strings.Contains(err.Error(), call) || !strings.Contains(err.Error(), name) {
		t.Errorf("%v after %d streams, want the cause %s, the call and the file", err, p.count("Write"), jit.ExecutorDenied)
	}
}

// TestPlatform sends the properties of the platform, sorted, with the digest of the toolchain.
func TestPlatform(t *testing.T) {
	p := newProxy(t, startFarm(t, "").Host)
	var sent atomic.Pointer[repb.Platform]
	p.set(fault{request: func(method string, m []byte) []byte {
		if method == "BatchUpdateBlobs" {
			edit(m, new(repb.BatchUpdateBlobsRequest), func(r *repb.BatchUpdateBlobsRequest) {
				for _, b := range r.GetRequests() {
					edit(b.GetData(), new(repb.Action), func(a *repb.Action) {
						if a.GetCommandDigest().GetSizeBytes() > 0 && a.GetPlatform() != nil {
							sent.Store(a.GetPlatform())
						}
					})
				}
			})
		}
		return nil
	}})
	x, err := open(t, "grpc://"+p.host, map[string]string{
		"AITER_JIT_EXECUTOR_PLATFORM": "z=1,a={toolchain}", "AITER_JIT_EXECUTOR_WAIT": "3s",
	})
	if err != nil {
		t.Fatal(err)
	}
	command := copying(t, 10)
	command.Toolchain = "abc"
	_, _ = x.Execute(t.Context(), command) // no worker of this farm has the properties
	var got []string
	for _, q := range sent.Load().GetProperties() {
		got = append(got, q.GetName()+"="+q.GetValue())
	}
	if strings.Join(got, " ") != "a=abc z=1" {
		t.Errorf("sent %q, want a=abc and z=1", got)
	}
}
