package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/trace"
)

// errDeadline is the error for a request if its call does not end in time.
var errDeadline = errors.New("the call did not end in time; try again later")

// formatError reports a Content-Type or an Accept header that names no format of the service.
type formatError struct{ header, got string }

func (e *formatError) Error() string {
	return fmt.Sprintf("%s: expected %s or %s, got %.80q", e.header, api.NPY, api.Safetensors, e.got)
}

// conv1d answers a request with the convolution of its tensors.
func (s *service) conv1d(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	s.begun.Add(1)
	held := &reservation{from: s.memory}
	defer func() { held.release() }()
	span := s.rec.Begin(trace.Host, "request")
	req, err := s.answer(w, r, held)
	span.End(err)
	// The time limit for writing the answer begins after the call.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.forAnswer))
	code := http.StatusOK
	if err != nil {
		code = s.refuse(w, err)
	} else {
		w.Header().Set("Content-Type", string(req.format))
		w.Header().Set("Content-Length", strconv.Itoa(len(req.answer)))
		_, err := w.Write(req.answer)
		if err = errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
			slog.Warn("conv1d: write the answer", "err", err)
			code = statusGone
		}
	}
	s.counts.answered(code, begin)
	if code != statusGone {
		s.answered.Add(1)
	}
}

// answer reads a request and waits for its call.
func (s *service) answer(w http.ResponseWriter, r *http.Request, held *reservation) (*request, error) {
	format, known := api.FormatOf(r.Header.Get("Content-Type"))
	if !known {
		return nil, &formatError{"Content-Type", r.Header.Get("Content-Type")}
	}
	answer, known := api.Accepted(r.Header.Get("Accept"), format)
	if !known {
		return nil, &formatError{"Accept", r.Header.Get("Accept")}
	}
	silu := false
	switch activation := r.URL.Query().Get("activation"); activation {
	case "silu":
		silu = true
	case "", "none":
	default:
		return nil, &requestError{fmt.Sprintf("activation: expected silu or none, got %.40q", activation)}
	}
	body, err := s.readBody(w, r, held)
	if err != nil {
		return nil, err
	}
	req, err := decode(body, format, s.own)
	if err != nil {
		return nil, err
	}
	req.silu, req.format = silu, answer
	if req.callBytes() > s.limits.memory-held.held {
		return nil, errTooLarge
	}
	if err := held.grow(req.callBytes()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), s.limits.forCall, errDeadline)
	defer cancel()
	return req, s.batches.do(ctx, req, held)
}

// refuse answers with an error, and returns its HTTP code. A busy service sends Retry-After. If the body was not read, the connection is
// closed after the answer.
func (s *service) refuse(w http.ResponseWriter, err error) int {
	code, text := status(err)
	switch code {
	case statusGone:
		return code
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusRequestTimeout, http.StatusLengthRequired, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusNotAcceptable:
		w.Header().Set("Connection", "close")
	case http.StatusInternalServerError:
		slog.Error("conv1d", "err", err)
	}
	http.Error(w, text, code)
	return code
}

// statusGone is nginx's code for a client that did not wait for its answer. No client receives it.
const statusGone = 499

// status returns the HTTP code and the text of the answer for an error.
func status(err error) (code int, text string) {
	var large *http.MaxBytesError
	var refused *registry.OperatorError
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", large.Limit)
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge, err.Error()
	case errors.Is(err, errNoLength):
		return http.StatusLengthRequired, err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, "the request took too long to arrive"
	case errors.Is(err, errDeadline):
		return http.StatusGatewayTimeout, err.Error()
	case errors.Is(err, errBusy), errors.Is(err, errStopped), as[*device.PoolLimitError](err):
		return http.StatusServiceUnavailable, err.Error()
	case as[*formatError](err):
		code := http.StatusUnsupportedMediaType
		if e := (*formatError)(nil); errors.As(err, &e) && e.header == "Accept" {
			code = http.StatusNotAcceptable
		}
		return code, err.Error()
	case as[*requestError](err), as[*registry.ArgumentError](err), errors.As(err, &refused) && refused.Kind != "RuntimeError":
		return http.StatusBadRequest, err.Error()
	case errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return statusGone, ""
	}
	return http.StatusInternalServerError, err.Error()
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}
