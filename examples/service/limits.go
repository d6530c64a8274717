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

// limits keep clients from taking the service's memory and time. A stop takes longer
// than what a client may take for a request: header, body, and reading the answer.
type limits struct {
	body   int64 // bytes of a request
	memory int64 // bytes that all requests hold at once: at least memoryPerByte times body
	calls  int64 // at once

	forHeader, forBody, forAnswer time.Duration // that a client may take
	forStop                       time.Duration // after which a stop cuts off who is left
}

func defaultLimits() limits {
	return limits{
		body: 16 << 20, memory: 2 << 30, calls: 2 * int64(runtime.NumCPU()),
		forHeader: 5 * time.Second, forBody: 10 * time.Second, forAnswer: 10 * time.Second,
		forStop: 30 * time.Second,
	}
}

const (
	// memoryPerByte is what a request takes for each byte of its body: the numbers, of
	// which one takes two bytes of a body or more, on the host and on the device, the
	// result, and the answer.
	memoryPerByte = 96
	// bodyChunk is how much of a body is read before memory is reserved for more.
	bodyChunk = 4 << 10
)

// errBusy is a request that has to wait: others have the memory, or make the calls.
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

// readBody reads a request's body. Memory is reserved as it comes, not as it is
// announced: a client that sends nothing holds next to nothing.
func (s *service) readBody(w http.ResponseWriter, r *http.Request, held *reservation) ([]byte, error) {
	if r.ContentLength > s.limits.body {
		return nil, &http.MaxBytesError{Limit: s.limits.body}
	}
	in := http.MaxBytesReader(w, r.Body, s.limits.body)
	var body bytes.Buffer
	for {
		if err := held.grow(bodyChunk * memoryPerByte); err != nil {
			held.release()
			_, _ = io.Copy(io.Discard, in) // a client that still sends would not see the answer
			return nil, err
		}
		_, err := io.CopyN(&body, in, bodyChunk)
		if errors.Is(err, io.EOF) {
			// The connection is watched from here on, for a client that goes away.
			return body.Bytes(), http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
		if err != nil {
			return nil, err
		}
	}
}

// timed gives each request its deadlines. They are not those of http.Server, which has
// one for the answer that begins before the call, and a first call compiles.
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
