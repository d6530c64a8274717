package device

import (
	"sync/atomic"
	"time"

	"github.com/aiter-go/aiter/tensor"
)

// Event is a point in a stream's work. Drivers make and destroy events.
type Event struct {
	dev      tensor.Device
	handle   uintptr
	recorded atomic.Bool
	gone     atomic.Bool
	at       atomic.Pointer[time.Time] // the host's events have no handle
}

// Device is the device whose streams can record the event.
func (e *Event) Device() tensor.Device { return e.dev }

// check refuses destroyed events and events of another driver.
func (e *Event) check(call string, t tensor.DeviceType) error {
	if e == nil {
		return &EventError{Call: call, Reason: "there is no event: make one with NewEvent"}
	}
	if e.dev.Type != t {
		return &OwnerError{Call: call, What: "event", Device: e.dev}
	}
	if e.gone.Load() {
		return &EventError{Call: call, Reason: "the event was destroyed before"}
	}
	return nil
}

// checkTimed verifies that both events were recorded.
func checkTimed(t tensor.DeviceType, from, to *Event) error {
	if err := errorsFirst(from.check("Elapsed", t), to.check("Elapsed", t)); err != nil {
		return err
	}
	if !from.recorded.Load() || !to.recorded.Load() {
		return &EventError{Call: "Elapsed", Reason: "an event was not recorded: call Record with both first"}
	}
	return nil
}
