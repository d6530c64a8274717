package fleet

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Limits of one request. The context of a pull bounds all of them together.
const (
	tries      = 3
	firstPause = 200 * time.Millisecond // the longest pause before the second try; it doubles
)

// timeouts of the connections of a client.
type timeouts struct {
	connect time.Duration
	headers time.Duration // from the end of a request to the headers of the answer
	idle    time.Duration // without a byte of a body
}

var errIdle = errors.New("the server sent nothing for too long")

// triedError is the error of the last try of a request that was repeated, or could not be.
type triedError struct{ err error }

func (e *triedError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *triedError) Unwrap() error { return e.err }

// retrying repeats requests that may succeed later: refused or broken connections, and answers of a server that is
// overloaded. It does not repeat a request that timed out, because that delays the start of a program once more.
type retrying struct {
	base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (r retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := r.base.RoundTrip(req)
		pause, again := pauseAfter(resp, err, try)
		if !again || try == tries || !repeatable(req) || !fits(req.Context(), pause) {
			if err != nil && again {
				err = &triedError{err}
			}
			return resp, err
		}
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be used again
			_ = resp.Body.Close()
		}
		if err := sleep(req.Context(), pause); err != nil {
			return nil, err
		}
	}
}

// repeatable reports whether a request has no body and changes nothing.
func repeatable(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

// pauseAfter returns the pause before the next try. again reports whether a repetition may succeed. Pauses are random, so that nodes
// that failed at the same time do not repeat their requests at the same time.
func pauseAfter(resp *http.Response, err error, try int) (pause time.Duration, again bool) {
	pause = rand.N(firstPause << (try - 1))
	if err != nil {
		return pause, isBroken(err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return max(pause, retryAfter(resp.Header.Get("Retry-After"))), true
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return pause, true
	}
	return 0, false
}

// retryAfter parses the header Retry-After: seconds or a date. It returns 0 for other values.
func retryAfter(v string) time.Duration {
	if n, err := strconv.Atoi(v); err == nil && n >= 0 && n < 1<<20 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// fits reports whether a pause ends before the deadline.
func fits(ctx context.Context, pause time.Duration) bool {
	end, has := ctx.Deadline()
	return !has || time.Until(end) > pause
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// watched ends requests and responses for which nothing arrives for too long. The limits of the transport do not include the answer of a
// proxy.
type watched struct {
	base          http.RoundTripper
	headers, idle time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (w watched) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(w.headers, func() { cancel(errIdle) })
	if !repeatable(req) { // a body takes time to send
		timer.Stop()
	}
	resp, err := w.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		timer.Stop()
		if context.Cause(ctx) == errIdle {
			err = errIdle
		}
		cancel(nil)
		return nil, err
	}
	timer.Reset(w.idle)
	resp.Body = &watchedBody{ReadCloser: resp.Body, ctx: ctx, timer: timer, idle: w.idle, cancel: cancel}
	return resp, nil
}

// watchedBody is a body that must give a byte within idle.
type watchedBody struct {
	io.ReadCloser
	ctx    context.Context
	timer  *time.Timer
	idle   time.Duration
	cancel context.CancelCauseFunc
	once   sync.Once
}

// Read implements [io.Reader].
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(b.idle)
	}
	if err != nil && err != io.EOF && context.Cause(b.ctx) == errIdle {
		err = errIdle
	}
	return n, err
}

// Close implements [io.Closer].
func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() {
		b.timer.Stop()
		b.cancel(nil)
	})
	return err
}
