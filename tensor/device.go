package tensor

import (
	"fmt"
	"strconv"
	"strings"
)

// DeviceType is a type of device, numbered as in DLPack.
type DeviceType int32

// The types of devices that hold tensors.
const (
	CPU  DeviceType = 1
	CUDA DeviceType = 2
	ROCM DeviceType = 10
)

// String returns the word used in device names: "cpu", "cuda", "rocm".
func (t DeviceType) String() string {
	switch t {
	case CPU:
		return "cpu"
	case CUDA:
		return "cuda"
	case ROCM:
		return "rocm"
	}
	return fmt.Sprintf("device%d", int32(t))
}

// Device identifies a device by its type and its number among the devices of that type, from 0.
// Devices are comparable. The zero value stands for "no device".
type Device struct {
	Type DeviceType
	ID   int32
}

// Host returns the CPU's device.
func Host() Device { return Device{Type: CPU} }

// IsHost reports whether Go code can read memory of the device.
func (d Device) IsHost() bool { return d.Type == CPU }

// String returns "cpu", "cuda:0", "rocm:1", or "no device" for the zero value.
func (d Device) String() string {
	if d == (Device{}) {
		return "no device"
	}
	if d.IsHost() && d.ID == 0 {
		return "cpu"
	}
	return fmt.Sprintf("%s:%d", d.Type, d.ID)
}

// ParseDevice parses names such as "cpu", "cuda", "cuda:1" or "rocm:0". The name "hip" is the same
// as "rocm". Without a number the ID is 0. The error is a *DeviceError.
func ParseDevice(s string) (Device, error) {
	word, num, numbered := strings.Cut(strings.ToLower(strings.TrimSpace(s)), ":")
	dev := Device{}
	switch word {
	case "cpu":
		dev.Type = CPU
	case "cuda":
		dev.Type = CUDA
	case "rocm", "hip":
		dev.Type = ROCM
	default:
		return Device{}, &DeviceError{Input: s}
	}
	if numbered {
		id, err := strconv.ParseUint(num, 10, 31)
		if err != nil {
			return Device{}, &DeviceError{Input: s}
		}
		dev.ID = int32(id)
	}
	return dev, nil
}
