package buildfarm

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	bspb "google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aiter-go/aiter/jit"
)

const (
	maxBatch  = 3 << 20   // bytes of blobs in one message; gRPC servers accept 4 MiB
	chunk     = 1 << 20   // bytes of one message of a stream
	maxOutput = 2 << 30   // bytes of one output
	minRate   = 256 << 10 // bytes per second; see timeFor
)

// digest names a blob.
type digest struct {
	hash string
	size int64
}

func digestOf(data []byte) digest {
	sum := sha256.Sum256(data)
	return digest{hex.EncodeToString(sum[:]), int64(len(data))}
}

func (d digest) proto() *repb.Digest { return &repb.Digest{Hash: d.hash, SizeBytes: d.size} }

func fromProto(p *repb.Digest) digest { return digest{p.GetHash(), p.GetSizeBytes()} }

// upload sends the blobs that the farm does not have.
func (x *executor) upload(ctx context.Context, blobs map[digest][]byte) error {
	req := &repb.FindMissingBlobsRequest{InstanceName: x.instance}
	for d := range blobs {
		req.BlobDigests = append(req.BlobDigests, d.proto())
	}
	found, err := call(ctx, x, "FindMissingBlobs", func(ctx context.Context) (*repb.FindMissingBlobsResponse, error) {
		return repb.NewContentAddressableStorageClient(x.conn).FindMissingBlobs(ctx, req)
	})
	if err != nil {
		return err
	}
	limit := int64(maxBatch)
	if most := x.batchLimit(); most > 0 {
		limit = min(limit, most)
	}
	batch, size := &repb.BatchUpdateBlobsRequest{InstanceName: x.instance}, int64(0)
	for _, p := range found.GetMissingBlobDigests() {
		d := fromProto(p)
		data, known := blobs[d]
		switch {
		case !known:
			return x.faultOf("FindMissingBlobs", fmt.Errorf("the answer names the blob %s, which the query did not contain", d.hash))
		case d.size > limit:
			if err := x.write(ctx, d, data); err != nil {
				return err
			}
			continue
		case size+d.size > limit:
			if err := x.update(ctx, batch); err != nil {
				return err
			}
			batch, size = &repb.BatchUpdateBlobsRequest{InstanceName: x.instance}, 0
		}
		batch.Requests = append(batch.Requests, &repb.BatchUpdateBlobsRequest_Request{Digest: d.proto(), Data: data})
		size += d.size
	}
	return x.update(ctx, batch)
}

// update sends a batch of small blobs.
func (x *executor) update(ctx context.Context, batch *repb.BatchUpdateBlobsRequest) error {
	if len(batch.GetRequests()) == 0 {
		return nil
	}
	resp, err := call(ctx, x, "BatchUpdateBlobs", func(ctx context.Context) (*repb.BatchUpdateBlobsResponse, error) {
		return repb.NewContentAddressableStorageClient(x.conn).BatchUpdateBlobs(ctx, batch)
	})
	if err != nil {
		return err
	}
	for _, r := range resp.GetResponses() {
		if err := status.ErrorProto(r.GetStatus()); err != nil {
			return x.faultOf("BatchUpdateBlobs", err)
		}
	}
	return nil
}

// timeFor returns the time limit for the transfer of size bytes: the limit of a call, plus the time that the bytes take at minRate.
func (x *executor) timeFor(size int64) time.Duration {
	return min(x.wait, callWait) + time.Duration(size)*time.Second/minRate
}

// write sends a blob that is too large for a message, as a stream.
func (x *executor) write(ctx context.Context, d digest, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, x.timeFor(d.size))
	defer cancel()
	stream, err := bspb.NewByteStreamClient(x.conn).Write(ctx)
	if err != nil {
		return x.faultOf("ByteStream.Write", err)
	}
	name := path.Join(x.instance, "uploads", uuid(), "blobs", d.hash, fmt.Sprint(d.size))
	for at := 0; at < len(data); at += chunk {
		end := min(at+chunk, len(data))
		m := &bspb.WriteRequest{WriteOffset: int64(at), Data: data[at:end], FinishWrite: end == len(data)}
		if at == 0 {
			m.ResourceName = name
		}
		if err := stream.Send(m); err != nil {
			break // the server ended the stream: it has the blob, or its answer has the reason
		}
	}
	resp, err := stream.CloseAndRecv()
	if err != nil {
		return x.faultOf("ByteStream.Write", err)
	}
	if n := resp.GetCommittedSize(); n != d.size && n != -1 {
		return x.faultOf("ByteStream.Write", fmt.Errorf("it stored %d of %d bytes of %s", n, d.size, d.hash))
	}
	return nil
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// damaged returns the error of an output that is not the one that the farm declares.
func damaged(format string, args ...any) error {
	return &jit.ExecutorError{Cause: jit.ExecutorDamaged, Err: fmt.Errorf(format, args...)}
}

// download writes a blob to a new file. It fails with the cause damaged if the farm does not have the blob, or sends another one.
func (x *executor) download(ctx context.Context, d digest, to string) error {
	if d.size < 0 || d.size > maxOutput {
		return damaged("an output of %d bytes, expected at most %d", d.size, maxOutput)
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	check := &checked{to: f, hash: sha256.New(), left: d.size}
	if d.size > 0 {
		if err := x.read(ctx, d, check); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(check.hash.Sum(nil)); check.left != 0 || got != d.hash {
		return damaged("blob %s of %d bytes arrived with SHA-256 %s, and %d bytes are missing", d.hash, d.size, got, check.left)
	}
	return f.Close()
}

// checked writes and hashes a blob.
type checked struct {
	to   io.Writer
	hash hash.Hash
	left int64 // bytes that are missing
}

var errTooLong = errors.New("the blob is longer than its digest declares")

// Write implements [io.Writer].
func (c *checked) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, errTooLong
	}
	c.hash.Write(p)
	return c.to.Write(p)
}

// read gets a blob: a small one in one message, a large one as a stream.
func (x *executor) read(ctx context.Context, d digest, to io.Writer) error {
	if d.size <= maxBatch {
		return x.readSmall(ctx, d, to)
	}
	ctx, cancel := context.WithTimeout(ctx, x.timeFor(d.size))
	defer cancel()
	wait := min(x.wait, callWait)
	idle := time.AfterFunc(wait, cancel) // a stream that stops
	defer idle.Stop()
	stream, err := bspb.NewByteStreamClient(x.conn).Read(ctx, &bspb.ReadRequest{
		ResourceName: path.Join(x.instance, "blobs", d.hash, fmt.Sprint(d.size)),
	})
	if err != nil {
		return x.readFault("ByteStream.Read", d, err)
	}
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil // download checks the size
		case err != nil && ctx.Err() != nil && !idle.Stop():
			return x.readFault("ByteStream.Read", d, status.Error(codes.DeadlineExceeded, "the server sent nothing for "+wait.String()))
		case err != nil:
			return x.readFault("ByteStream.Read", d, err)
		}
		idle.Reset(wait)
		if _, err := to.Write(m.GetData()); errors.Is(err, errTooLong) {
			return damaged("blob %s: %w", d.hash, err)
		} else if err != nil {
			return err
		}
	}
}

func (x *executor) readSmall(ctx context.Context, d digest, to io.Writer) error {
	req := &repb.BatchReadBlobsRequest{InstanceName: x.instance, Digests: []*repb.Digest{d.proto()}}
	resp, err := call(ctx, x, "BatchReadBlobs", func(ctx context.Context) (*repb.BatchReadBlobsResponse, error) {
		return repb.NewContentAddressableStorageClient(x.conn).BatchReadBlobs(ctx, req)
	})
	if err != nil {
		return x.readFault("BatchReadBlobs", d, err)
	}
	if n := len(resp.GetResponses()); n != 1 {
		return damaged("BatchReadBlobs at %s gave %d blobs, expected 1", x.host, n)
	}
	r := resp.GetResponses()[0]
	if err := status.ErrorProto(r.GetStatus()); err != nil {
		return x.readFault("BatchReadBlobs", d, err)
	}
	if _, err := to.Write(r.GetData()); errors.Is(err, errTooLong) {
		return damaged("blob %s: %w", d.hash, err)
	} else if err != nil {
		return err
	}
	return nil
}

// readFault returns the error of a blob that cannot be read. A blob that the farm has lost makes the result a damaged one.
func (x *executor) readFault(what string, d digest, err error) error {
	switch status.Code(err) {
	case codes.NotFound, codes.DataLoss, codes.OutOfRange, codes.FailedPrecondition:
		return damaged("%s at %s: blob %s: %w", what, x.host, d.hash, err)
	}
	return x.faultOf(what, err)
}
