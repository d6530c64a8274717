package buildfarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/aiter-go/aiter/jit"
)

// outFolder is the folder of the outputs in a worker's folder.
const outFolder = "out"

// Execute implements [jit.Executor].
func (x *executor) Execute(ctx context.Context, c jit.RemoteCommand) (jit.Execution, error) {
	if err := x.suspended(); err != nil {
		return jit.Execution{}, err
	}
	start := time.Now()
	run, err := x.execute(ctx, c)
	if err != nil && ctx.Err() == nil {
		x.suspend(err, time.Since(start))
	}
	return run, err
}

func (x *executor) execute(ctx context.Context, c jit.RemoteCommand) (run jit.Execution, err error) {
	if err := x.checkCapabilities(ctx); err != nil {
		return run, err
	}
	a, err := x.newAction(c)
	if err != nil {
		return run, err
	}
	if !c.Fresh {
		result, err := x.cached(ctx, a)
		if err != nil {
			return run, err
		}
		// A damaged output of a remembered result is a miss: another run makes it again.
		if result != nil && x.take(ctx, c, result) == nil {
			return jit.Execution{Cached: true}, nil
		}
		c.Fresh = result != nil
	}
	if err := x.upload(ctx, a.blobs); err != nil {
		return run, err
	}
	resp, err := x.run(ctx, a, c)
	if isMissingBlob(err) { // the farm has dropped an input since the upload
		if err = x.upload(ctx, a.blobs); err == nil {
			resp, err = x.run(ctx, a, c)
		}
	}
	if err != nil {
		return run, err
	}
	run.Cached = resp.GetCachedResult()
	if err := x.take(ctx, c, resp.GetResult()); err != nil {
		var e *jit.ExecutorError
		if errors.As(err, &e) {
			e.Cached = run.Cached
		}
		return run, err
	}
	return run, nil
}

// action is a command in the form of the API.
type action struct {
	digest digest
	blobs  map[digest][]byte // all blobs that a worker needs
}

// salt is a part of each action's digest. A new salt keeps this package from using results that its older versions left in farms.
const salt = "aiter-1"

// newAction makes the blobs of a command. Equal commands have equal digests.
func (x *executor) newAction(c jit.RemoteCommand) (action, error) {
	a := action{blobs: map[digest][]byte{}}
	root, err := a.addTree(c.Inputs)
	if err != nil {
		return a, err
	}
	platform := x.properties(c.Toolchain)
	command := &repb.Command{Arguments: []string{"/bin/sh", "-c", c.Script, "sh"}}
	//lint:ignore SA1019 Servers of API versions below 2.2 read the platform of the command, later ones that of the action.
	command.Platform = platform
	for _, entry := range slices.Sorted(slices.Values(c.Environ)) {
		name, value, _ := strings.Cut(entry, "=")
		command.EnvironmentVariables = append(command.EnvironmentVariables, &repb.Command_EnvironmentVariable{Name: name, Value: value})
	}
	for _, name := range slices.Sorted(slices.Values(slices.Concat(c.Outputs, c.Optional))) {
		command.OutputPaths = append(command.OutputPaths, path.Join(outFolder, name))
	}
	commandDigest, err := a.addMessage(command)
	if err != nil {
		return a, err
	}
	a.digest, err = a.addMessage(&repb.Action{
		CommandDigest: commandDigest.proto(), InputRootDigest: root.proto(), Timeout: seconds(c.Timeout),
		Salt: []byte(salt), Platform: platform,
	})
	return a, err
}

// properties returns the platform, nil if none is configured. {toolchain} in a value stands for the digest of the toolchain.
func (x *executor) properties(toolchain string) *repb.Platform {
	if len(x.platform) == 0 {
		return nil
	}
	p := new(repb.Platform)
	for _, q := range x.platform {
		p.Properties = append(p.Properties, &repb.Platform_Property{Name: q.name, Value: strings.ReplaceAll(q.value, "{toolchain}", toolchain)})
	}
	slices.SortFunc(p.Properties, func(a, b *repb.Platform_Property) int {
		return strings.Compare(a.GetName()+"\x00"+a.GetValue(), b.GetName()+"\x00"+b.GetValue())
	})
	return p
}

func (a *action) add(data []byte) digest {
	d := digestOf(data)
	a.blobs[d] = data
	return d
}

func (a *action) addMessage(m proto.Message) (digest, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return digest{}, err
	}
	return a.add(data), nil
}

// addTree adds the files and their folders, and returns the digest of the root folder.
func (a *action) addTree(files map[string][]byte) (digest, error) {
	dir, below := new(repb.Directory), map[string]map[string][]byte{}
	for name, data := range files {
		if !filepath.IsLocal(name) || path.Clean(name) != name {
			return digest{}, &jit.ExecutorError{Cause: jit.ExecutorInputs, Err: fmt.Errorf("input %q: expected a relative path", name)}
		}
		folder, rest, nested := strings.Cut(name, "/")
		if !nested {
			dir.Files = append(dir.Files, &repb.FileNode{Name: name, Digest: a.add(data).proto()})
			continue
		}
		if below[folder] == nil {
			below[folder] = map[string][]byte{}
		}
		below[folder][rest] = data
	}
	for folder, files := range below {
		d, err := a.addTree(files)
		if err != nil {
			return d, err
		}
		dir.Directories = append(dir.Directories, &repb.DirectoryNode{Name: folder, Digest: d.proto()})
	}
	slices.SortFunc(dir.Files, func(a, b *repb.FileNode) int { return strings.Compare(a.GetName(), b.GetName()) })
	slices.SortFunc(dir.Directories, func(a, b *repb.DirectoryNode) int { return strings.Compare(a.GetName(), b.GetName()) })
	return a.addMessage(dir)
}

// cached returns the remembered result of an action, nil if there is none that can be used. Some servers remember failures.
func (x *executor) cached(ctx context.Context, a action) (*repb.ActionResult, error) {
	result, err := call(ctx, x, "GetActionResult", func(ctx context.Context) (*repb.ActionResult, error) {
		r, err := repb.NewActionCacheClient(x.conn).GetActionResult(ctx, &repb.GetActionResultRequest{
			InstanceName: x.instance, ActionDigest: a.digest.proto(),
		})
		switch status.Code(err) {
		case codes.NotFound, codes.Unimplemented:
			return nil, nil
		}
		return r, err
	})
	if err != nil || result == nil || result.GetExitCode() != 0 {
		return nil, err
	}
	return result, nil
}

// isMissingBlob reports whether the error is that of an input that the server does not have.
func isMissingBlob(err error) bool {
	return err != nil && status.Code(err) == codes.FailedPrecondition
}

// run executes an action. It fails if the farm makes no progress for the time x.wait, or if the action runs longer than its time limit
// plus x.wait.
func (x *executor) run(ctx context.Context, a action, c jit.RemoteCommand) (*repb.ExecuteResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := &watchdog{x: x, running: c.Timeout + x.wait}
	go watch.run(ctx, cancel)
	stream, err := repb.NewExecutionClient(x.conn).Execute(ctx, &repb.ExecuteRequest{
		InstanceName: x.instance, ActionDigest: a.digest.proto(), SkipCacheLookup: c.Fresh,
	})
	name := ""
	for try := 1; ; try++ {
		if err == nil {
			var op *longrunningpb.Operation
			if op, err = watch.follow(stream, &name); err == nil {
				return x.response(op)
			}
		}
		if context.Cause(ctx) != nil {
			return nil, x.faultOf("Execute", context.Cause(ctx))
		}
		if try == tries || !isTransient(err) && !errors.Is(err, io.EOF) {
			return nil, x.faultOf("Execute", err)
		}
		if name == "" { // there is no execution to wait for
			stream, err = repb.NewExecutionClient(x.conn).Execute(ctx, &repb.ExecuteRequest{
				InstanceName: x.instance, ActionDigest: a.digest.proto(), SkipCacheLookup: c.Fresh,
			})
		} else {
			stream, err = repb.NewExecutionClient(x.conn).WaitExecution(ctx, &repb.WaitExecutionRequest{Name: name})
		}
	}
}

// follow reads a stream until the operation is done. It sets name as soon as the operation has one.
func (w *watchdog) follow(stream grpc.ServerStreamingClient[longrunningpb.Operation], name *string) (*longrunningpb.Operation, error) {
	for {
		op, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		w.x.progressed()
		if op.GetDone() {
			return op, nil
		}
		if op.GetName() != "" {
			*name = op.GetName()
		}
		var m repb.ExecuteOperationMetadata
		if op.GetMetadata().UnmarshalTo(&m) == nil && m.GetStage() == repb.ExecutionStage_EXECUTING {
			w.start()
		}
	}
}

// response returns the result of a finished operation.
func (x *executor) response(op *longrunningpb.Operation) (*repb.ExecuteResponse, error) {
	if err := status.ErrorProto(op.GetError()); err != nil {
		return nil, x.faultOf("Execute", err)
	}
	resp := new(repb.ExecuteResponse)
	if err := op.GetResponse().UnmarshalTo(resp); err != nil {
		return nil, x.faultOf("Execute", err)
	}
	if err := status.ErrorProto(resp.GetStatus()); err != nil {
		if status.Code(err) == codes.DeadlineExceeded { // the worker's limit; the farm works
			return nil, &jit.ExecutorError{Cause: jit.ExecutorFailed, Err: fmt.Errorf("Execute at %s: %w", x.host, err)}
		}
		return nil, x.faultOf("Execute", err)
	}
	return resp, nil
}

// take downloads the outputs of a result. It fails with the causes failed, toolchain and damaged.
func (x *executor) take(ctx context.Context, c jit.RemoteCommand, result *repb.ActionResult) error {
	if code := result.GetExitCode(); code != 0 {
		e := &jit.ExecutorError{Cause: jit.ExecutorFailed, Err: fmt.Errorf("exit status %d on the worker: %s", code, x.stderr(ctx, result))}
		if code == jit.WorkerToolchainStatus {
			e.Cause = jit.ExecutorToolchain
		}
		return e
	}
	outputs := map[string]*repb.OutputFile{}
	for _, f := range result.GetOutputFiles() {
		outputs[f.GetPath()] = f
	}
	names := slices.Concat(c.Outputs, c.Optional)
	errs := make([]error, len(names))
	var running sync.WaitGroup
	for i, name := range names {
		f := outputs[path.Join(outFolder, name)]
		mandatory := i < len(c.Outputs)
		switch {
		case f == nil && !mandatory:
		case f.GetDigest() == nil || mandatory && f.GetDigest().GetSizeBytes() == 0:
			errs[i] = damaged("the result at %s has no %s", x.host, name)
		default:
			running.Go(func() { errs[i] = x.download(ctx, fromProto(f.GetDigest()), filepath.Join(c.Dir, name)) })
		}
	}
	running.Wait()
	err := cmp.Or(errs...)
	if err != nil {
		x.removeOutputs(c)
	}
	return err
}

// stderr returns the first part of the error output of a command.
func (x *executor) stderr(ctx context.Context, result *repb.ActionResult) string {
	const most = 2000
	text := result.GetStderrRaw()
	if d := fromProto(result.GetStderrDigest()); len(text) == 0 && d.size > 0 && d.size <= maxBatch {
		var b strings.Builder
		if x.readSmall(ctx, d, &b) == nil {
			text = []byte(b.String())
		}
	}
	return strings.TrimSpace(string(text[:min(len(text), most)]))
}
