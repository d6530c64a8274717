package device_test

import (
	"errors"
	"os"
	"testing"

	"github.com/aiter-go/aiter/device"
)

// BenchmarkDriver measures the overhead of the wrappers, on the machine's GPU or on a fake
// library.
func BenchmarkDriver(b *testing.B) {
	drv, err := device.OpenCUDA(device.CUDALibraries(os.Getenv)...)
	var missing *device.UnavailableError
	if errors.As(err, &missing) {
		drv, err = device.OpenCUDA(fake(b, "fakecuda"))
	}
	must(b, err)
	defer closeDriver(b, drv)
	s := alloc(b, drv, 0, 1<<20)
	host := make([]byte, 1<<20)
	b.Run("copy to device 1 MiB", func(b *testing.B) {
		b.SetBytes(1 << 20)
		for b.Loop() {
			must(b, drv.CopyToDevice(s, host))
		}
	})
	b.Run("synchronize idle stream", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(b, drv.Synchronize(device.Stream{Device: s.Device()}))
		}
	})
}
