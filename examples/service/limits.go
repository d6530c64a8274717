package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"
)

// limits bound the memory and time of requests. forStop exceeds the time of a request:
// its header, its body and the reading of its answer.
type limits struct {
	body   int64 // bytes of a request
	memory int64 // bytes of all requests at once: at least memoryPerByte times body
	calls  int64 // number at once

	forHeader, forBody, forAnswer time.Duration // time limits of a client
	forStop                       time.Duration // after which a stop disconnects the remaining clients
}

func defaultLimits() limits {
	return limits{
		body: 16 << 20, memory: 2 << 30, calls: 2 * int64(runtime.NumCPU()),
		forHeader: 5 * time.Second, forBody: 10 * time.Second, forAnswer: 10 * time.Second,
		forStop: 30 * time.Second,
	}
}

const (
	// memoryPerByte is the memory of a request for each byte of its body: the numbers
	// (two bytes of body or more each) on the host and on the device, the result, and
	// the answer.
	memoryPerByte = 96
	// bodyChunk is the number of bytes read before more memory is reserved.
	bodyChunk = 4 << 10
)

// errBusy is the error for a request while others use all memory or calls.
var errBusy = errors.New("too many requests at once; try again later")

// reservation is memory that one request has reserved.
type reservation struct {
	from *semaphore.Weighted
	held int64
}

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

// readBody reads a request's body. It reserves memory for the bytes that arrive, not
// for the announced length: a client that sends nothing holds almost no memory.
func (s *service) readBody(w http.ResponseWriter, r *http.Request, held *reservation) ([]byte, error) {
	if r.ContentLength > s.limits.body {
		return nil, &http.MaxBytesError{Limit: s.limits.body}
	}
	in := http.MaxBytesReader(w, r.Body, s.limits.body)
	var body bytes.Buffer
	for {
		if err := held.grow(bodyChunk * memoryPerByte); err != nil {
			held.release()
			_, _ = io.Copy(io.Discard, in) // a client reads the answer after it has sent the body
			return nil, err
		}
		_, err := io.CopyN(&body, in, bodyChunk)
		if errors.Is(err, io.EOF) {
			// From here on the server detects a disconnected client.
			return body.Bytes(), http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
		if err != nil {
			return nil, err
		}
	}
}

// timed sets the deadlines of each request. http.Server has one deadline for the
// answer, which begins before the call, and a first call compiles.
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
