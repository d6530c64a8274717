package buildfarm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/aiter-go/aiter/jit"
)

// capabilities are the capabilities of a farm that this package uses.
type capabilities struct{ maxBatch int64 } // bytes of blobs in one message, 0 for no limit

// checkCapabilities queries the farm's capabilities once. It fails if the farm executes no commands, does not support SHA-256, or
// serves only later versions of the API than 2.
func (x *executor) checkCapabilities(ctx context.Context) error {
	x.mu.Lock()
	known := x.caps != nil
	x.mu.Unlock()
	if known {
		return nil
	}
	got, err := call(ctx, x, "GetCapabilities", func(ctx context.Context) (*repb.ServerCapabilities, error) {
		return repb.NewCapabilitiesClient(x.conn).GetCapabilities(ctx, &repb.GetCapabilitiesRequest{InstanceName: x.instance})
	})
	if err != nil {
		return err
	}
	storage, execution := got.GetCacheCapabilities(), got.GetExecutionCapabilities()
	switch {
	case !execution.GetExecEnabled():
		err = errNoExecution
	case !slices.Contains(storage.GetDigestFunctions(), repb.DigestFunction_SHA256):
		err = fmt.Errorf("it has the digest functions %v, expected SHA256", storage.GetDigestFunctions())
	case got.GetLowApiVersion().GetMajor() > 2:
		err = fmt.Errorf("it serves version %d and above of the API, expected 2", got.GetLowApiVersion().GetMajor())
	}
	if err != nil {
		return &jit.ExecutorError{Cause: jit.ExecutorServer, Err: fmt.Errorf("GetCapabilities at %s: %w", x.host, err)}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.caps = &capabilities{storage.GetMaxBatchTotalSizeBytes()}
	return nil
}

var errNoExecution = errors.New("it has a cache but executes no commands; set AITER_JIT_EXECUTOR to the address of a build farm")

// batchLimit returns the most bytes that the farm accepts in a message, 0 for no limit.
func (x *executor) batchLimit() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.caps.maxBatch
}

func seconds(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// removeOutputs removes the downloaded outputs, so that those of another result can be downloaded.
func (x *executor) removeOutputs(c jit.RemoteCommand) {
	for _, name := range slices.Concat(c.Outputs, c.Optional) {
		_ = os.Remove(filepath.Join(c.Dir, name))
	}
}
