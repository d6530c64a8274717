package metrics

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aiter-go/aiter/device"
)

// poolMemory collects the counters of pools, by device and kind of memory.
type poolMemory struct {
	inUse, held, allocations, reused *prometheus.Desc

	mu    sync.Mutex
	pools map[string]*device.Pool // by device
}

func newPoolMemory() poolMemory {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("aiter_pool_"+name, help, []string{"device", "memory"}, nil)
	}
	return poolMemory{
		inUse:       desc("in_use_bytes", "Memory of a pool that allocations use."),
		held:        desc("held_bytes", "Memory that a pool has from the driver, in use or kept for reuse."),
		allocations: desc("driver_allocations_total", "Allocations for which a pool allocated memory from the driver."),
		reused:      desc("reused_allocations_total", "Allocations that reused memory of the pool."),
		pools:       map[string]*device.Pool{},
	}
}

// AddPool adds a pool to the metrics, such as that of registry.Registry.HostPool. It replaces another pool of the device.
func (c *Collector) AddPool(p *device.Pool) {
	c.pools.mu.Lock()
	defer c.pools.mu.Unlock()
	c.pools.pools[p.Device().String()] = p
}

// Describe implements [prometheus.Collector].
func (c *poolMemory) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.inUse, c.held, c.allocations, c.reused} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *poolMemory) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	pools := maps.Clone(c.pools)
	c.mu.Unlock()
	for _, dev := range slices.Sorted(maps.Keys(pools)) {
		stats := pools[dev].Stats()
		for memory, m := range map[string]device.MemoryStats{"device": stats.Device, "pinned": stats.Pinned} {
			to <- prometheus.MustNewConstMetric(c.inUse, prometheus.GaugeValue, float64(m.InUse), dev, memory)
			to <- prometheus.MustNewConstMetric(c.held, prometheus.GaugeValue, float64(m.Held), dev, memory)
			to <- prometheus.MustNewConstMetric(c.allocations, prometheus.CounterValue, float64(m.Allocations), dev, memory)
			to <- prometheus.MustNewConstMetric(c.reused, prometheus.CounterValue, float64(m.Reused), dev, memory)
		}
	}
}
