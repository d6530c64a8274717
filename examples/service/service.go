package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/aiter-go/aiter/causalconv1d"
	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// operator is the operator that requests call.
const operator = "causal_conv1d_varlen_fwd"

// service computes on one device.
type service struct {
	reg     *registry.Registry
	dev     tensor.Device
	own     *filters // of all requests; nil: each has its own
	call    func(context.Context, []*request) error
	batches *batcher
	counts  *counts
	rec     *trace.Recorder // records only while /debug/trace runs; nil: there is no /debug/trace
	tracing sync.Mutex      // held while a trace is recorded

	limits          limits
	memory          *semaphore.Weighted // in bytes
	ready, draining atomic.Bool
	begun, answered atomic.Int64 // numbers of requests
}

// newService makes a service. The caller ends it with batches.stop, and closes the registry after that.
func newService(reg *registry.Registry, dev tensor.Device, own *filters, builds *metrics.Collector, rec *trace.Recorder,
	l limits) (*service, error) {
	conv, err := causalconv1d.New(reg)
	if err != nil {
		return nil, err
	}
	pool, err := reg.HostPool(dev)
	if err != nil {
		return nil, err
	}
	builds.AddPool(pool)
	s := &service{
		reg: reg, dev: dev, own: own, counts: newCounts(builds), rec: rec, limits: l, memory: semaphore.NewWeighted(l.memory),
		call: (&caller{conv: conv.OnHost(dev), pool: pool, rec: rec}).call,
	}
	s.batches = newBatcher(s.call, l, s.counts)
	return s, nil
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/conv1d", s.conv1d)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.counts.handler())
	if s.rec != nil {
		mux.HandleFunc("GET /debug/trace", s.trace)
	}
	return s.timed(s.drained(mux))
}

// readyz tells a load balancer whether to send requests: it answers 200 from the end of warm to the signal to stop, and otherwise 503.
func (s *service) readyz(w http.ResponseWriter, _ *http.Request) {
	switch {
	case s.draining.Load():
		w.Header().Set("Connection", "close") // the signal may have come after drained looked
		http.Error(w, "stopping", http.StatusServiceUnavailable)
	case !s.ready.Load():
		http.Error(w, "building", http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ready")
	}
}

// warm builds and loads the code that requests need on the service's device, and checks a call of each element type. A service without
// its own filters builds the whole module, because requests may have any width. A service with filters needs only the parts that the
// checked calls build.
func (s *service) warm(ctx context.Context) error {
	begin := time.Now()
	if s.own == nil {
		if err := s.reg.Warm(ctx, s.dev, operator); err != nil {
			return err
		}
	}
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16} {
		if err := s.verify(ctx, dt); err != nil {
			return fmt.Errorf("check a call with %s on %s: %w", dt, s.dev, err)
		}
	}
	s.ready.Store(true)
	slog.Info("ready", "device", s.dev, "after", time.Since(begin).Round(time.Millisecond))
	return nil
}

// verify compares the results of a call with the formula. It uses the filters of the service if there are any.
func (s *service) verify(ctx context.Context, dt tensor.DType) error {
	dim, width := int64(64), int64(4)
	if s.own != nil {
		dim, width = s.own.weight.Dim(0), s.own.weight.Dim(1)
	}
	in := map[string]*tensor.Tensor{}
	for name, shape := range map[string][]int64{
		api.X: {2, 37, dim}, api.Weight: {dim, width}, api.Bias: {dim}, api.Initial: {2, dim, width - 1},
	} {
		n, err := tensor.ByteSize(tensor.Int8, shape...)
		if err != nil {
			return err
		}
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i*7%23)/16 - 0.5
		}
		if in[name], err = tensor.FromFloat64s(dt, values, shape...); err != nil {
			return err
		}
	}
	f, err := newFilters(in[api.Weight], in[api.Bias])
	if err != nil {
		return err
	}
	if s.own != nil {
		f, in[api.Weight], in[api.Bias] = s.own, s.own.weight, s.own.bias
	}
	r := &request{x: in[api.X], filters: f, initial: in[api.Initial], silu: true, batched: true, format: api.Safetensors}
	if err := s.call(ctx, []*request{r}); err != nil {
		return err
	}
	answer, err := r.format.Decode(r.answer, api.Out)
	if err != nil {
		return err
	}
	return api.Check(in, answer, true)
}
