package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/aiter-go/aiter/causalconv1d"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// maxBody is the largest request, in bytes.
const maxBody = 16 << 20

// service computes on one device.
type service struct {
	reg   *registry.Registry
	conv  *causalconv1d.Ops
	dev   tensor.Device
	count *metrics.Collector
	built atomic.Bool
}

func newService(reg *registry.Registry, dev tensor.Device, count *metrics.Collector) (*service, error) {
	conv, err := causalconv1d.New(reg)
	if err != nil {
		return nil, err
	}
	return &service{reg: reg, conv: conv, dev: dev, count: count}, nil
}

// warm builds and loads what requests will call on the service's device.
func (s *service) warm(ctx context.Context) error {
	t, err := s.reg.Target(s.dev)
	if err != nil {
		return err
	}
	if err := s.reg.Warm(ctx, []target.Target{t}, "causal_conv1d_fwd"); err != nil {
		return err
	}
	s.built.Store(true)
	slog.Info("ready", "device", s.dev)
	return nil
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", s.ready)
	mux.HandleFunc("POST /conv1d", s.conv1d)
	mux.Handle("GET /metrics", s.count.Handler())
	return mux
}

// ready is for a load balancer: 200 once nothing needs compiling.
func (s *service) ready(w http.ResponseWriter, _ *http.Request) {
	if !s.built.Load() {
		http.Error(w, "building", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// request is one convolution.
type request struct {
	X      [][][]float32 `json:"x"`      // batch, dim, seqlen
	Weight [][]float32   `json:"weight"` // dim, width
	Bias   []float32     `json:"bias"`   // dim, or left out
	SiLU   bool          `json:"silu"`
}

type response struct {
	Out [][][]float32 `json:"out"` // batch, dim, seqlen
}

func (s *service) conv1d(w http.ResponseWriter, r *http.Request) {
	var req request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := s.compute(r.Context(), req)
	if err != nil {
		slog.Warn("conv1d", "err", err)
		http.Error(w, err.Error(), status(err))
		return
	}
	// First into memory: once a part is sent, the status cannot say that JSON has no
	// word for an infinity or a NaN.
	body, err := json.Marshal(response{out})
	if err != nil {
		slog.Warn("conv1d", "err", err)
		http.Error(w, fmt.Sprintf("the result cannot be written as JSON: %v", err), http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(body, '\n')); err != nil {
		slog.Warn("conv1d", "err", err)
	}
}

// status tells what the client got wrong from what the service did.
func status(err error) int {
	var refused *registry.OperatorError
	var ragged *raggedError
	if errors.As(err, &ragged) || errors.As(err, &refused) && refused.Kind != "RuntimeError" {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// compute takes the arguments to the device, calls, and brings the result back.
func (s *service) compute(ctx context.Context, req request) (out [][][]float32, err error) {
	m := &memory{devices: s.reg.Devices(), dev: s.dev}
	defer func() { err = errors.Join(err, m.free()) }()
	args, err := m.place(req)
	if err != nil {
		return nil, err
	}
	if err := s.conv.Forward(ctx, args); err != nil {
		return nil, err
	}
	return m.fetch(args.Out)
}
