package device_test

import (
	"fmt"
	"log"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// The example copies a tensor to a device and back. With a GPU, replace tensor.Host() by
// tensor.Device{Type: tensor.ROCM, ID: 1}, for example.
func ExampleDevices() {
	devices, err := device.Open(device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = devices.Close() }()

	x, err := tensor.FromFloat32([]float32{1, 2, 3, 4}, 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	there, err := devices.ToDevice(x, tensor.Host())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = devices.Free(there) }()
	back, err := devices.ToHost(there)
	if err != nil {
		log.Fatal(err)
	}
	values, err := back.Float64s()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(there, values)
	// Output: float32[2 2] on cpu [1 2 3 4]
}
