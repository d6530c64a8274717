package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/metrics"
)

func TestPool(t *testing.T) {
	counts, reg := metrics.New(), prometheus.NewPedanticRegistry()
	reg.MustRegister(counts)
	for range 2 { // the second pool of the device replaces the first
		pool, err := device.OpenHost().NewPool(0, device.PoolOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		counts.AddPool(pool)
		for i := range 3 {
			s, err := pool.AllocPinned(4096)
			if err == nil && i < 2 {
				err = pool.Free(device.Stream{Device: pool.Device()}, s)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP aiter_pool_driver_allocations_total Allocations for which a pool allocated memory from the driver.
# TYPE aiter_pool_driver_allocations_total counter
aiter_pool_driver_allocations_total{device="cpu",memory="device"} 0
aiter_pool_driver_allocations_total{device="cpu",memory="pinned"} 1
# HELP aiter_pool_held_bytes Memory that a pool has from the driver, in use or kept for reuse.
# TYPE aiter_pool_held_bytes gauge
aiter_pool_held_bytes{device="cpu",memory="device"} 0
aiter_pool_held_bytes{device="cpu",memory="pinned"} 4096
# HELP aiter_pool_in_use_bytes Memory of a pool that allocations use.
# TYPE aiter_pool_in_use_bytes gauge
aiter_pool_in_use_bytes{device="cpu",memory="device"} 0
aiter_pool_in_use_bytes{device="cpu",memory="pinned"} 4096
# HELP aiter_pool_reused_allocations_total Allocations that reused memory of the pool.
# TYPE aiter_pool_reused_allocations_total counter
aiter_pool_reused_allocations_total{device="cpu",memory="device"} 0
aiter_pool_reused_allocations_total{device="cpu",memory="pinned"} 2
`), "aiter_pool_driver_allocations_total", "aiter_pool_held_bytes", "aiter_pool_in_use_bytes", "aiter_pool_reused_allocations_total")
	if err != nil {
		t.Error(err)
	}
}
