package device

import (
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Error is a failed call of a vendor's library.
type Error struct {
	Call string // the C function
	Code int32
	Name string // the code's name, such as hipErrorOutOfMemory
	Text string // the vendor's explanation
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
}

// UnavailableError is the error for a vendor without a driver on this machine.
type UnavailableError struct {
	Vendor  target.Vendor
	Tried   []string // the libraries, in order
	Library string   // the library that was opened, "" if none could be
	Err     error    // of opening, of a missing symbol or of the first calls
}

func (e *UnavailableError) Error() string {
	if errors.Is(e.Err, errors.ErrUnsupported) {
		return fmt.Sprintf("no %s device: %v", e.Vendor, e.Err)
	}
	if e.Library == "" {
		return fmt.Sprintf("no %s runtime library: install the %s, or use the cpu: %v", e.Vendor, provider(e.Vendor), e.Err)
	}
	return fmt.Sprintf("no usable %s device through %s: %v", e.Vendor, e.Library, e.Err)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// provider names the software that contains a vendor's library, and for AMD another remedy.
func provider(v target.Vendor) string {
	if v == target.HIP {
		return "ROCm HIP runtime or name its folder with ROCM_PATH"
	}
	return "NVIDIA driver"
}

// IndexError is the error for a device index outside of [0, Count).
type IndexError struct {
	Type         tensor.DeviceType
	Index, Count int
}

func (e *IndexError) Error() string {
	if e.Count == 0 {
		return fmt.Sprintf("there is no device %s:%d: the machine has none of this type", e.Type, e.Index)
	}
	return fmt.Sprintf("there is no device %s:%d: expected 0 to %d", e.Type, e.Index, e.Count-1)
}

// TypeError is the error for a type of device without a driver.
type TypeError struct{ Type tensor.DeviceType }

func (e *TypeError) Error() string {
	return fmt.Sprintf("no driver for devices of type %s: expected cpu, cuda or rocm", e.Type)
}

// RegionError is the error for memory that a call cannot use.
type RegionError struct {
	Call     string // the method
	What     string // "source", "destination", "size"
	Got      string
	Expected string
}

func (e *RegionError) Error() string {
	return fmt.Sprintf("%s: %s is %s, expected %s", e.Call, e.What, e.Got, e.Expected)
}

// OwnerError is the error for an object that the driver did not make, or that was freed or destroyed.
type OwnerError struct {
	Call   string // the method
	What   string // "storage", "stream", "event"
	Device tensor.Device
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("%s: the %s on %s does not belong to this driver, or was freed already: "+
		"free each object once, with the driver that made it",
		e.Call, e.What, e.Device)
}

// EventError is the error for an event in the wrong state.
type EventError struct {
	Call   string
	Reason string
}

func (e *EventError) Error() string { return e.Call + ": " + e.Reason }

// ClosedError is the error for a call after Close. What names the closed object.
type ClosedError struct{ What string }

func (e *ClosedError) Error() string { return e.What + " was closed: open it again to use it" }
