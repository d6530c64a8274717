package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aiter-go/aiter/metrics"
)

// counts are the metrics of the service. Those of builds and of the pool come from package metrics.
type counts struct {
	all *prometheus.Registry

	requests                  *prometheus.CounterVec // by code
	seconds, wait             prometheus.Histogram
	batchRequests, batchBytes prometheus.Histogram
	waiting                   prometheus.Gauge
	split                     prometheus.Counter
}

func newCounts(builds *metrics.Collector) *counts {
	histogram := func(name, help string, start, factor float64, n int) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(start, factor, n)})
	}
	c := &counts{
		all: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "conv1d_requests_total", Help: "Answers by HTTP code; 499: the client did not wait for the answer.",
		}, []string{"code"}),
		seconds:       histogram("conv1d_request_seconds", "Time from the header of a request to its answer.", 1e-4, 2, 18),
		wait:          histogram("conv1d_wait_seconds", "Time that a request waited for its call.", 1e-5, 2, 20),
		batchRequests: histogram("conv1d_batch_requests", "Requests in a call.", 1, 2, 11),
		batchBytes:    histogram("conv1d_batch_bytes", "Bytes of x in a call.", 1024, 4, 10),
		waiting:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "conv1d_waiting", Help: "Requests that wait for a call."}),
		split: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "conv1d_split_batches_total", Help: "Calls of several requests that failed and were repeated as one call for each request.",
		}),
	}
	c.all.MustRegister(builds, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		c.requests, c.seconds, c.wait, c.batchRequests, c.batchBytes, c.waiting, c.split)
	return c
}

func (c *counts) handler() http.Handler { return promhttp.HandlerFor(c.all, promhttp.HandlerOpts{}) }

// answered counts the answer to a request.
func (c *counts) answered(code int, begin time.Time) {
	c.requests.WithLabelValues(strconv.Itoa(code)).Inc()
	c.seconds.Observe(time.Since(begin).Seconds())
}
