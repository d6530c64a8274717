package device

import (
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
	Tried   []string // libraries looked for
	Library string   // the one that opened, "" if none did
	Err     error    // what failed: opening, a missing symbol or the first calls
}

func (e *UnavailableError) Error() string {
	if e.Library == "" {
		return fmt.Sprintf("no %s runtime library: install the %s, or use the cpu: %v", e.Vendor, provider(e.Vendor), e.Err)
	}
	return fmt.Sprintf("no usable %s device through %s: %v", e.Vendor, e.Library, e.Err)
}

// Unwrap returns what failed.
func (e *UnavailableError) Unwrap() error { return e.Err }

func provider(v target.Vendor) string {
	if v == target.HIP {
		return "ROCm HIP runtime or name its folder with ROCM_PATH"
	}
	return "NVIDIA driver"
}

// IndexError is the error for a device index that a driver does not have.
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
	Call   string // the method
	What   string // "source", "destination", "size"
	Got    string
	Expect string
}

func (e *RegionError) Error() string {
	return fmt.Sprintf("%s: %s is %s, expected %s", e.Call, e.What, e.Got, e.Expect)
}

// OwnerError is the error for an object that the driver did not make or that was freed.
type OwnerError struct {
	Call   string // the method
	What   string // "storage", "stream", "event"
	Device tensor.Device
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("%s: the %s on %s is not, or no longer, one of this driver's: give back each once, to the driver that made it",
		e.Call, e.What, e.Device)
}

// EventError is the error for an event in the wrong state.
type EventError struct {
	Call   string
	Reason string
}

func (e *EventError) Error() string { return e.Call + ": " + e.Reason }

// ClosedError is the error for a call after Close.
type ClosedError struct{ What string }

func (e *ClosedError) Error() string { return e.What + " was closed: open it again to use it" }
