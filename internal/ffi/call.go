package ffi

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"structs"
	"unsafe"

	"github.com/aiter-go/aiter/internal/dl"
)

// Stream is the queue for a call's work. If Set is false the operator uses the device's default
// stream.
type Stream struct {
	DeviceType int32
	DeviceID   int32
	Handle     uintptr
	Set        bool
}

// cCall is struct AiterCall of csrc/support/aiter_ffi.cpp.
type cCall struct {
	_          structs.HostLayout
	fn         uintptr
	args       unsafe.Pointer
	nargs      int32
	hasStream  int32
	deviceType int32
	deviceID   int32
	stream     uintptr
	result     Any
	err        uintptr
}

// inline is the number of arguments that a frame holds without another allocation.
const inline = 16

// frame is the memory of one call that C reads and writes. It is on the heap, so that the garbage
// collector does not move it.
type frame struct {
	call cCall
	args [inline]Any
}

// errNoFunc is returned for a call of the zero Func.
var errNoFunc = errors.New("call of no operator: Func is its zero value")

// Call calls f on stream s. It returns when the operator has queued its work, on the host when the
// work is done. The caller keeps tensors among args alive until Call returns. An error that the
// operator raised is a *CallError.
func (s *Support) Call(f Func, stream Stream, args []Any) error {
	if f.addr == 0 {
		return errNoFunc
	}
	fr := s.frames.Get().(*frame)
	fr.fill(f, stream, args)
	status := int32(dl.Call(s.call, uintptr(unsafe.Pointer(&fr.call))))
	err := s.finish(f, fr, status)
	runtime.KeepAlive(args)
	s.frames.Put(fr)
	return err
}

func (fr *frame) fill(f Func, stream Stream, args []Any) {
	fr.call = cCall{fn: f.addr, nargs: int32(len(args))}
	if stream.Set {
		fr.call.hasStream, fr.call.stream = 1, stream.Handle
		fr.call.deviceType, fr.call.deviceID = stream.DeviceType, stream.DeviceID
	}
	packed := fr.args[:]
	if len(args) > inline {
		packed = make([]Any, len(args))
	}
	copy(packed, args)
	fr.call.args = unsafe.Pointer(unsafe.SliceData(packed))
}

// finish returns the result or the error of the frame.
func (s *Support) finish(f Func, fr *frame, status int32) error {
	fr.call.args = nil
	if fr.call.result.Type >= typeHeapFirst {
		dl.Call(s.decref, uintptr(fr.call.result.Bits)) // operators return nothing; be safe
	}
	if status == 0 {
		return nil
	}
	if fr.call.err == 0 {
		return &CallError{Op: f.op, Kind: "RuntimeError", Message: fmt.Sprintf("%s: returned status %d without an error", f.op, status)}
	}
	err := &CallError{Op: f.op, Kind: errorText(fr.call.err, 24), Message: errorText(fr.call.err, 40)}
	dl.Call(s.decref, fr.call.err)
	return err
}

// errorText copies a text of a TVM FFI error object: {data, length} at offset.
func errorText(object, offset uintptr) string {
	cell := (*struct {
		data *byte
		size uintptr
	})(dl.Pointer(object + offset))
	return strings.Clone(unsafe.String(cell.data, cell.size))
}
