package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aiter-go/aiter/internal/cache"
)

// refreshInterval is the shortest time between two reads of the cache folder.
const refreshInterval = time.Minute

// cacheSize collects the size of a cache. Until a cache is set it collects nothing.
type cacheSize struct {
	bytes, artifacts *prometheus.Desc

	mu    sync.Mutex
	stats func() (cache.Stats, error) // nil until set
	last  cache.Stats
	at    time.Time // time of last; zero: none
	now   func() time.Time
}

func newCacheSize() cacheSize {
	return cacheSize{
		bytes:     prometheus.NewDesc("aiter_cache_size_bytes", "Size of all files in the kernel cache, at most a minute old.", nil, nil),
		artifacts: prometheus.NewDesc("aiter_cache_artifacts", "Libraries in the kernel cache, at most a minute old.", nil, nil),
		now:       time.Now,
	}
}

func (c *cacheSize) set(stats func() (cache.Stats, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats, c.at = stats, time.Time{}
}

// Describe implements [prometheus.Collector].
func (c *cacheSize) Describe(to chan<- *prometheus.Desc) {
	to <- c.bytes
	to <- c.artifacts
}

// Collect implements [prometheus.Collector].
func (c *cacheSize) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stats == nil {
		return
	}
	if c.at.IsZero() || c.now().Sub(c.at) >= refreshInterval {
		stats, err := c.stats()
		if err != nil {
			to <- prometheus.NewInvalidMetric(c.bytes, err)
			return
		}
		c.last, c.at = stats, c.now()
	}
	to <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(c.last.Bytes))
	to <- prometheus.MustNewConstMetric(c.artifacts, prometheus.GaugeValue, float64(len(c.last.Artifacts)))
}
