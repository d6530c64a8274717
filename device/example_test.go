package device_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// The example copies a tensor to a device and back. With a GPU, replace tensor.Host() by
// devices.Default() or tensor.Device{Type: tensor.ROCM, ID: 1}, for example.
func ExampleDevices() {
	devices, err := device.Open(device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = devices.Close() }()

	ctx := context.Background()
	x, err := tensor.Of([]float32{1, 2, 3, 4}, 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	there, err := devices.Upload(ctx, x, tensor.Host())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = devices.Free(there) }()
	back, err := devices.Download(ctx, there)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(back)
	// Output: float32[2 2] on cpu [[1 2] [3 4]]
}

// The example queues a copy on a stream and waits for an event after it.
func ExampleWithStream() {
	devices, err := device.Open(device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = devices.Close() }()
	if err := copyOnStream(devices, tensor.Host()); err != nil {
		log.Fatal(err)
	}
	// Output: int32[3] on cpu [1 2 3]
}

// copyOnStream copies a tensor to a device and back on a stream. On a GPU, pinned memory of
// devices.NewPinned lets the copies overlap with other work.
func copyOnStream(devices *device.Devices, dev tensor.Device) error {
	driver, err := devices.Driver(dev.Type)
	if err != nil {
		return err
	}
	stream, err := driver.NewStream(int(dev.ID))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	done, err := driver.NewEvent(int(dev.ID))
	if err != nil {
		return err
	}
	defer func() { _ = done.Close() }()

	ctx := device.WithStream(context.Background(), stream)
	x, err := tensor.Of([]int32{1, 2, 3})
	if err != nil {
		return err
	}
	there, err := devices.Upload(ctx, x, dev)
	if err != nil {
		return err
	}
	defer func() { _ = devices.Free(there) }()
	back, err := tensor.New(tensor.Int32, 3)
	if err != nil {
		return err
	}
	if err := devices.Copy(ctx, back, there); err != nil {
		return err
	}
	if err := driver.Record(done, stream); err != nil {
		return err
	}
	if err := driver.SynchronizeEvent(done); err != nil {
		return err
	}
	fmt.Println(back)
	return nil
}
