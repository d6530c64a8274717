package device

import (
	"sync/atomic"
	"time"

	"github.com/aiter-go/aiter/tensor"
)

// Event is a point in a stream's work. Drivers make and destroy events.
type Event struct {
	dev       tensor.Device
	owner     eventCloser
	handle    uintptr // 0 for the host's events
	untimed   bool
	recorded  atomic.Bool
	destroyed atomic.Bool
	hostTime  atomic.Pointer[time.Time] // when the host recorded the event; nil for GPUs
}

// eventCloser destroys its events.
type eventCloser interface{ closeEvent(*Event) error }

// Close destroys the event, once. The error is an *EventError for nil and for a destroyed event.
func (e *Event) Close() error {
	if e == nil {
		return &EventError{Call: "Close", Reason: "the event is nil: make one with NewEvent"}
	}
	return e.owner.closeEvent(e)
}

// Device returns the device whose streams can record the event.
func (e *Event) Device() tensor.Device { return e.dev }

// check returns an *EventError for nil and for a destroyed event, and an *OwnerError for an event
// of another driver. call is the method that was called.
func (e *Event) check(call string, t tensor.DeviceType) error {
	if e == nil {
		return &EventError{Call: call, Reason: "the event is nil: make one with NewEvent"}
	}
	if e.dev.Type != t {
		return &OwnerError{Call: call, What: "event", Device: e.dev}
	}
	if e.destroyed.Load() {
		return &EventError{Call: call, Reason: "the event is destroyed: make another with NewEvent"}
	}
	return nil
}

// checkTimed returns an error unless Elapsed can use both events.
func checkTimed(t tensor.DeviceType, from, to *Event) error {
	if err := firstError(from.check("Elapsed", t), to.check("Elapsed", t)); err != nil {
		return err
	}
	if from.untimed || to.untimed {
		return &EventError{Call: "Elapsed", Reason: "an event has no time: make both with NewEvent"}
	}
	if !from.recorded.Load() || !to.recorded.Load() {
		return &EventError{Call: "Elapsed", Reason: "an event was not recorded: call Record with each event first"}
	}
	return nil
}
