// Package metrics exports counts and times of builds, and the memory of pools, to Prometheus.
//
//	m := metrics.New()
//	reg, err := registry.Open(ctx, registry.Options{Observer: m})
//	m.SetCache(reg.Manager().Cache())
//	http.Handle("GET /metrics", m.Handler())
//
// The labels module, arch (the target), result and cause have few values each. A series with
// these labels appears with its first event. Calls of operators are not counted, because counting
// would slow each call; module otelaiter counts them on request.
package metrics

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

// Collector receives the events of builds, and exports them and the counters of pools to Prometheus. It is safe
// for concurrent use, and several registries may share one.
type Collector struct {
	info        prometheus.Gauge
	builds      *prometheus.HistogramVec // by module, arch and result
	units       *prometheus.CounterVec   // by module, arch, result and cause
	compiles    *prometheus.HistogramVec // by module, arch and result
	links       *prometheus.HistogramVec // by module, arch and result
	linkHits    *prometheus.CounterVec   // by module and arch
	compilers   prometheus.Gauge
	waits       *prometheus.HistogramVec // by module, arch and result
	reloads     *prometheus.HistogramVec // by module and result
	pulls       *prometheus.HistogramVec // by module, arch and result
	faults      *prometheus.CounterVec   // of pulls, by cause
	executions  *prometheus.HistogramVec // by module, arch and result
	farmFaults  *prometheus.CounterVec   // of executions, by cause
	quarantined prometheus.Counter
	trimmed     prometheus.Counter
	cache       cacheSize
	pools       poolMemory
}

var (
	_ jit.Observer         = (*Collector)(nil)
	_ prometheus.Collector = (*Collector)(nil)
)

// The values of the label result.
const (
	ok     = "ok"
	failed = "failed"
	hit    = "hit"
	miss   = "miss"
)

// New returns a collector without events. Register it, or serve its
// [Collector.Handler].
func New() *Collector {
	compile := prometheus.ExponentialBuckets(0.05, 2, 14) // seconds: to 7 minutes
	short := prometheus.ExponentialBuckets(0.001, 4, 10)  // to 4 minutes
	c := &Collector{
		info: buildInfo(),
		builds: histogram("build", "duration_seconds", "Time to get a module for a target, compiled or from the cache.", short, "module",
			"arch", "result"),
		units: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "aiter", Subsystem: "unit", Name: "lookups_total",
			Help: "Lookups of translation units in the cache, by result and cause of a miss.",
		}, []string{"module", "arch", "result", "cause"}),
		compiles: histogram("compile", "duration_seconds", "Time of one compiler run.", compile, "module", "arch", "result"),
		links:    histogram("link", "duration_seconds", "Time of one link.", compile, "module", "arch", "result"),
		linkHits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "aiter", Subsystem: "link", Name: "hits_total", Help: "Libraries that were found in the cache.",
		}, []string{"module", "arch"}),
		compilers: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "aiter", Name: "compilers_running", Help: "Units that are being compiled.",
		}),
		waits: histogram("lock_wait", "duration_seconds", "Time spent waiting for another process that runs the same compile or link.", short,
			"module", "arch", "result"),
		reloads: histogram("reload", "duration_seconds",
			"Time from a changed file until calls run the new code, or until the reload failed.", short, "module", "result"),
		pulls: histogram("pull", "duration_seconds", "Time to pull a set of kernels from a registry.", short, "module", "arch", "result"),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "aiter", Subsystem: "pull", Name: "faults_total", Help: "Failed pulls of sets from a registry, by cause.",
		}, []string{"cause"}),
		executions: histogram("execution", "duration_seconds", "Time of a compile or link on a build farm.", compile, "module", "arch", "result"),
		farmFaults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "aiter", Subsystem: "execution", Name: "faults_total",
			Help: "Compiles and links for which a build farm gave no result, by cause.",
		}, []string{"cause"}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "aiter", Subsystem: "cache", Name: "quarantined_files_total",
			Help: "Damaged files of the cache that were moved to quarantine.",
		}),
		trimmed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "aiter", Subsystem: "cache", Name: "trimmed_artifacts_total",
			Help: "Libraries that were removed to keep the limits of the cache.",
		}),
		cache: newCacheSize(),
		pools: newPoolMemory(),
	}
	return c
}

// histogram returns a histogram of seconds.
func histogram(subsystem, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "aiter", Subsystem: subsystem, Name: name, Help: help, Buckets: buckets,
	}, labels)
}

// Observe implements [jit.Observer].
func (c *Collector) Observe(e jit.Event) {
	switch e.Step {
	case jit.ModuleFinished:
		c.builds.WithLabelValues(e.Module, e.Target, buildResult(e)).Observe(e.Seconds)
	case jit.UnitHit:
		c.units.WithLabelValues(e.Module, e.Target, hit, "").Inc()
	case jit.UnitStarted:
		c.units.WithLabelValues(e.Module, e.Target, miss, string(e.Miss.Cause)).Inc()
		c.compilers.Inc()
	case jit.UnitFinished:
		c.compilers.Dec()
		c.compiles.WithLabelValues(e.Module, e.Target, result(e.Err)).Observe(e.Seconds)
	case jit.LinkHit:
		c.linkHits.WithLabelValues(e.Module, e.Target).Inc()
	case jit.LinkFinished:
		c.links.WithLabelValues(e.Module, e.Target, result(e.Err)).Observe(e.Seconds)
	case jit.Waited:
		c.waits.WithLabelValues(e.Module, e.Target, result(e.Err)).Observe(e.Seconds)
	case jit.Reloaded:
		c.reloads.WithLabelValues(e.Module, result(e.Err)).Observe(e.Seconds)
	case jit.Pulled:
		c.observePull(e)
	case jit.Executed:
		c.observeExecution(e)
	case jit.Quarantined:
		c.quarantined.Inc()
	case jit.Trimmed:
		c.trimmed.Add(float64(e.Units))
	}
}

// observePull counts a pull: ok, a miss for a module that the set does not have, or failed.
func (c *Collector) observePull(e jit.Event) {
	var failed *jit.PullError
	label := result(e.Err)
	if errors.As(e.Err, &failed) && !failed.IsFault() {
		label = miss
	} else if failed != nil {
		c.faults.WithLabelValues(string(failed.Cause)).Inc()
	}
	c.pulls.WithLabelValues(e.Module, e.Target, label).Observe(e.Seconds)
}

// observeExecution counts a compile or link on a build farm.
func (c *Collector) observeExecution(e jit.Event) {
	c.executions.WithLabelValues(e.Module, e.Target, result(e.Err)).Observe(e.Seconds)
	var fault *jit.ExecutorError
	switch {
	case errors.As(e.Err, &fault):
		c.farmFaults.WithLabelValues(string(fault.Cause)).Inc()
	case e.Err != nil:
		c.farmFaults.WithLabelValues(string(jit.ExecutorOther)).Inc()
	}
}

// buildResult returns the label of a finished build.
func buildResult(e jit.Event) string {
	if e.Err == nil && e.Status == jit.Hit {
		return hit
	}
	return result(e.Err)
}

// result returns the label of an error.
func result(err error) string {
	if err != nil {
		return failed
	}
	return ok
}

// SetCache adds the size of a cache to the metrics. Later calls replace the cache.
func (c *Collector) SetCache(d *cache.Dir) { c.cache.set(d.Stats) }

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, p := range c.collectors() {
		p.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, p := range c.collectors() {
		p.Collect(to)
	}
}

func (c *Collector) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		c.info, c.builds, c.units, c.compiles, c.links, c.linkHits, c.compilers, c.waits, c.reloads,
		c.pulls, c.faults, c.executions, c.farmFaults, c.quarantined, c.trimmed, &c.cache, &c.pools,
	}
}

// Handler serves the metrics of the collector, of Go and of the process, for programs
// without a Prometheus registry. If the cache folder cannot be read, only its metrics
// are missing.
func (c *Collector) Handler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		Registry:      reg,
		ErrorHandling: promhttp.ContinueOnError,
	})
}
