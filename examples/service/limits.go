package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/aiter-go/aiter/tensor"
)

// limits bound the memory and the time of requests. forStop exceeds the sum of the time limits of a request: for its header, its body,
// its call and its answer.
type limits struct {
	body   int64 // bytes of a request
	memory int64 // host memory of all requests together, in bytes
	batch  int64 // bytes of x in a call of several requests; 0: each request is a call of its own
	queue  int   // requests that wait for a call
	calls  int   // calls at the same time

	forHeader, forBody, forCall, forAnswer time.Duration // time limits of a request
	drain                                  time.Duration // how long the service accepts requests after a signal to stop
	forStop                                time.Duration // how long requests may take after drain, before their clients are disconnected
}

// defaultLimits returns the limits for a device. A GPU has two calls at the same time, so that one call packs while the other computes.
func defaultLimits(dev tensor.Device) limits {
	l := limits{
		body: 64 << 20, memory: 2 << 30, batch: 512 << 10, queue: 1024, calls: 1,
		forHeader: 5 * time.Second, forBody: 10 * time.Second, forCall: 10 * time.Second, forAnswer: 10 * time.Second,
		drain: 3 * time.Second, forStop: 40 * time.Second,
	}
	if !dev.IsHost() {
		l.calls = 2
	}
	return l
}

const (
	// memoryPerByte is the memory, in bytes, that is reserved for each byte of a body: for the buffer, for its copy when the buffer grows,
	// and for the tensors.
	memoryPerByte = 4
	// memoryOfDecoding is the memory, in bytes, for the decoded header of a request.
	memoryOfDecoding = 1 << 20
	// firstBuffer is the size of a body's first buffer, in bytes. Later buffers are twice as large as the part of the body that has
	// arrived.
	firstBuffer = 64 << 10
)

var (
	errNoLength = errors.New("the request has no Content-Length; send one")
	errTooLarge = errors.New("the request needs more memory than the service has for all requests")
)

// reservation is the memory that one request has reserved.
type reservation struct {
	from *semaphore.Weighted
	held int64 // bytes
}

// grow reserves n more bytes. It fails with errBusy if they are not available.
func (r *reservation) grow(n int64) error {
	if !r.from.TryAcquire(n) {
		return errBusy
	}
	r.held += n
	return nil
}

func (r *reservation) release() {
	r.from.Release(r.held)
	r.held = 0
}

// move moves the memory to a new reservation, which another goroutine releases.
func (r *reservation) move() *reservation {
	moved := *r
	r.held = 0
	return &moved
}

// readBody checks the size of a request's body and reads it. It reserves memory as bytes arrive, so that a client that announces many
// bytes and sends none holds almost no memory.
func (s *service) readBody(w http.ResponseWriter, r *http.Request, held *reservation) ([]byte, error) {
	size := r.ContentLength
	switch {
	case size < 0:
		return nil, errNoLength
	case size > s.limits.body:
		return nil, &http.MaxBytesError{Limit: s.limits.body}
	}
	var body []byte
	for int64(len(body)) < size {
		next := min(size, max(firstBuffer, 2*int64(len(body))))
		if err := held.grow((next - int64(len(body))) * memoryPerByte); err != nil {
			held.release()
			_, _ = io.Copy(io.Discard, r.Body) // a client reads the answer only after it has sent the whole body
			return nil, err
		}
		grown := make([]byte, next)
		if _, err := io.ReadFull(r.Body, grown[copy(grown, body):]); err != nil {
			return nil, fmt.Errorf("read the body, %d bytes: %w", size, err)
		}
		body = grown
	}
	if err := held.grow(memoryOfDecoding); err != nil {
		return nil, err
	}
	// Without a read deadline the server detects a client that disconnects during the call.
	return body, http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// timed sets the deadlines of each request. http.Server's own WriteTimeout would not do, because it includes the time of the call.
func (s *service) timed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, now := http.NewResponseController(w), time.Now()
		err := errors.Join(conn.SetReadDeadline(now.Add(s.limits.forBody)), conn.SetWriteDeadline(now.Add(s.limits.forAnswer)))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, r)
	})
}
