package optests

import (
	"context"
	"errors"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// Run tests all cases of an operator on devices, each as a subtest: it compares every output with the reference, and
// finds elements that were not written and writes outside of the tensors. Without devices it runs on the CPU.
func Run(t *testing.T, reg *registry.Registry, op Operator, devices ...tensor.Device) {
	t.Helper()
	found, err := reg.Lookup(op.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range onCPU(devices) {
		for _, c := range op.Cases {
			t.Run(op.Name+"/"+dev.String()+"/"+c.String(), func(t *testing.T) {
				p, err := op.Problem(found.Schema(), c)
				if err != nil {
					t.Fatal(err)
				}
				results, err := runnerOn(t, reg, found, dev).Run(p)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range results {
					if !r.OK() {
						t.Error(r)
					}
				}
			})
		}
	}
}

// Bench measures all cases of an operator on devices, each as a sub-benchmark: the time of a call that waits for its
// result, GB/s of [Operator].Bytes and GFLOP/s of [Operator].Flops. Caches are not flushed. Without devices it runs on
// the CPU.
func Bench(b *testing.B, reg *registry.Registry, op Operator, devices ...tensor.Device) {
	b.Helper()
	found, err := reg.Lookup(op.Name)
	if err != nil {
		b.Fatal(err)
	}
	for _, dev := range onCPU(devices) {
		for _, c := range op.Cases {
			b.Run(op.Name+"/"+dev.String()+"/"+c.String(), func(b *testing.B) {
				op.oneCase(found.Schema(), c).measure(b, reg, runnerOn(b, reg, found, dev), caseOf(found.Schema(), c), dev)
			})
		}
	}
}

// measure times one case.
func (d Declaration) measure(b *testing.B, reg *registry.Registry, r Runner, c Case, dev tensor.Device) {
	p, err := d.Generate(c)
	if err != nil {
		b.Fatal(err)
	}
	bytes, err := d.Traffic(c)
	if err != nil {
		b.Fatal(err)
	}
	multiplyAdds, err := d.MultiplyAdds(c)
	if err != nil {
		b.Fatal(err)
	}
	driver, err := reg.Devices().Driver(dev.Type)
	if err != nil {
		b.Fatal(err)
	}
	uploaded, err := r.Upload(p)
	if err != nil {
		b.Fatal(err)
	}
	defer uploaded.Free()
	call := func() {
		if err := r.Call(d.Name(), uploaded.Args); err != nil {
			b.Fatal(err)
		}
		if err := driver.Synchronize(device.Stream{Device: dev}); err != nil {
			b.Fatal(err)
		}
	}
	call() // builds
	for b.Loop() {
		call()
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(bytes)/seconds/1e9, "GB/s")
	if multiplyAdds > 0 {
		b.ReportMetric(2*multiplyAdds/seconds/1e9, "GFLOP/s")
	}
}

// onCPU returns the devices, the CPU if there are none.
func onCPU(devices []tensor.Device) []tensor.Device {
	if len(devices) == 0 {
		return []tensor.Device{tensor.Host()}
	}
	return devices
}

func runnerOn(t testing.TB, reg *registry.Registry, op *registry.Op, dev tensor.Device) Runner {
	return Runner{
		Device: Transfer(reg.Devices(), dev),
		Call:   func(_ string, args []any) error { return op.Call(t.Context(), args...) },
	}
}

// Transfer returns a Device that copies tensors between host and device, nil for the host.
func Transfer(devs *device.Devices, dev tensor.Device) Device {
	if dev.IsHost() {
		return nil
	}
	return transfer{devs, dev}
}

// Pinned returns a Device whose memory is pinned memory of the host, for calls with tensors in host memory.
func Pinned(drv device.Driver) Device { return pinned{drv} }

type pinned struct{ device.Driver }

var _ Device = pinned{}

// ToDevice implements [Device].
func (p pinned) ToDevice(t *tensor.Tensor) (*tensor.Tensor, error) {
	from, err := t.Storage().Bytes()
	if err != nil {
		return nil, err
	}
	s, err := p.AllocHost(int64(len(from)))
	if err != nil {
		return nil, err
	}
	to, err := s.Bytes()
	copy(to, from)
	if err != nil {
		return nil, errors.Join(err, p.Driver.Free(s))
	}
	return tensor.View(s, t.DType(), t.Shape(), t.Strides(), t.Offset())
}

// ToHost implements [Device].
func (p pinned) ToHost(t *tensor.Tensor) (*tensor.Tensor, error) { return t, nil }

// Free implements [Device].
func (p pinned) Free(t *tensor.Tensor) error { return p.Driver.Free(t.Storage()) }

type transfer struct {
	devs *device.Devices
	dev  tensor.Device
}

var _ Device = transfer{}

// ToDevice implements [Device].
func (m transfer) ToDevice(t *tensor.Tensor) (*tensor.Tensor, error) {
	return m.devs.Upload(context.Background(), t, m.dev)
}

// ToHost implements [Device].
func (m transfer) ToHost(t *tensor.Tensor) (*tensor.Tensor, error) {
	return m.devs.Download(context.Background(), t)
}

// Free implements [Device].
func (m transfer) Free(t *tensor.Tensor) error { return m.devs.Free(t) }
