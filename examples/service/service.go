package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/aiter-go/aiter/causalconv1d"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// operator is the operator that requests call.
const operator = "causal_conv1d_fwd"

// service computes on one device.
type service struct {
	reg   *registry.Registry
	conv  *causalconv1d.Ops
	dev   tensor.Device
	count *metrics.Collector

	limits limits
	memory *semaphore.Weighted // in bytes
	calls  *semaphore.Weighted
}

func newService(reg *registry.Registry, dev tensor.Device, count *metrics.Collector, l limits) (*service, error) {
	conv, err := causalconv1d.New(reg)
	if err != nil {
		return nil, err
	}
	return &service{
		reg: reg, conv: conv, dev: dev, count: count,
		limits: l, memory: semaphore.NewWeighted(l.memory), calls: semaphore.NewWeighted(l.calls),
	}, nil
}

// warm builds and loads the code of requests for the service's device.
func (s *service) warm(ctx context.Context) error {
	if err := s.reg.Warm(ctx, s.dev, operator); err != nil {
		return err
	}
	slog.Info("ready", "device", s.dev)
	return nil
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", s.ready)
	mux.HandleFunc("POST /conv1d", s.conv1d)
	mux.Handle("GET /metrics", s.count.Handler())
	return s.timed(mux)
}

// ready serves a load balancer: 200 after warm.
func (s *service) ready(w http.ResponseWriter, _ *http.Request) {
	if !s.reg.Ready(s.dev, operator) {
		http.Error(w, "building", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

type response struct {
	Out [][][]float32 `json:"out"` // batch, dim, seqlen
}

func (s *service) conv1d(w http.ResponseWriter, r *http.Request) {
	held := &reservation{from: s.memory}
	defer held.release()
	body, err := s.answer(w, r, held)
	// The deadline of the answer begins after the call.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.forAnswer))
	if err != nil {
		slog.Warn("conv1d", "err", err)
		s.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(body, '\n')); err != nil {
		slog.Warn("conv1d", "err", err)
	}
}

// answer returns the whole answer. JSON cannot represent infinities and NaN, and after
// the first byte the status could not report that.
func (s *service) answer(w http.ResponseWriter, r *http.Request, held *reservation) ([]byte, error) {
	body, err := s.readBody(w, r, held)
	if err != nil {
		return nil, err
	}
	req, err := decode(body)
	if err != nil {
		return nil, err
	}
	if !s.calls.TryAcquire(1) {
		return nil, errBusy
	}
	defer s.calls.Release(1)
	out, err := s.compute(r.Context(), req)
	if err != nil {
		return nil, err
	}
	return json.Marshal(response{out})
}

// refuse answers with an error. A busy service sends Retry-After; a body that was not
// read completely closes the connection.
func (s *service) refuse(w http.ResponseWriter, err error) {
	code, text := status(err)
	switch code {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusRequestTimeout, http.StatusRequestEntityTooLarge:
		w.Header().Set("Connection", "close")
	}
	http.Error(w, text, code)
}

// status distinguishes errors of the client from errors of the service.
func status(err error) (code int, text string) {
	var large *http.MaxBytesError
	var refused *registry.OperatorError
	var number *json.UnsupportedValueError
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, "the request took too long to arrive"
	case errors.Is(err, errBusy):
		return http.StatusServiceUnavailable, err.Error()
	case errors.As(err, &number):
		return http.StatusUnprocessableEntity, fmt.Sprintf("the result cannot be written as JSON: %v", err)
	case as[*requestError](err), as[*raggedError](err), errors.Is(err, io.ErrUnexpectedEOF),
		errors.As(err, &refused) && refused.Kind != "RuntimeError":
		return http.StatusBadRequest, err.Error()
	}
	return http.StatusInternalServerError, err.Error()
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// compute copies the arguments to the device, calls the operator, and copies the
// result back.
func (s *service) compute(ctx context.Context, req request) (out [][][]float32, err error) {
	m := &memory{devices: s.reg.Devices(), dev: s.dev}
	defer func() { err = errors.Join(err, m.free()) }()
	args, err := m.place(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.conv.Forward(ctx, args); err != nil {
		return nil, err
	}
	return m.fetch(ctx, args.Out)
}
