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

// Stream is the stream on which a call queues its work. If Set is false the operator uses the
// device's default stream.
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
	params     unsafe.Pointer // *Params
	result     Any
	err        uintptr
}

// inlineArgs is the number of arguments that a frame holds without another allocation.
const inlineArgs = 16

// frame is the memory that C reads and writes in one call. It is on the heap, where it does not
// move.
type frame struct {
	call cCall
	args [inlineArgs]Any
}

// errNoFunc is returned for a call of the zero Func.
var errNoFunc = errors.New("the function to call is the zero Func: get one from Module.Func")

// CallReturning calls f and returns its result: a number, a bool or none. CallReturning returns when the operator has queued its
// work on the stream; on the host the work is then complete. The caller keeps the tensors of args alive until the call returns. An
// error of the operator is a *CallError.
func (s *Support) CallReturning(f Func, stream Stream, args []Any) (Any, error) {
	if f.addr == 0 {
		return Any{}, errNoFunc
	}
	fr := s.frames.Get().(*frame)
	fr.fill(f, stream, args)
	status := int32(dl.Call(s.call, uintptr(unsafe.Pointer(&fr.call))))
	result, err := s.finish(f, fr, status)
	runtime.KeepAlive(args)
	s.frames.Put(fr)
	return result, err
}

// fill writes the call and its arguments.
func (fr *frame) fill(f Func, stream Stream, args []Any) {
	fr.call = cCall{fn: f.addr, nargs: int32(len(args)), params: unsafe.Pointer(f.params)}
	if stream.Set {
		fr.call.hasStream, fr.call.stream = 1, stream.Handle
		fr.call.deviceType, fr.call.deviceID = stream.DeviceType, stream.DeviceID
	}
	packed := fr.args[:]
	if len(args) > inlineArgs {
		packed = make([]Any, len(args))
	}
	copy(packed, args)
	fr.call.args = unsafe.Pointer(unsafe.SliceData(packed))
}

// finish returns the result and the error of the call. It releases a result that is an object.
func (s *Support) finish(f Func, fr *frame, status int32) (Any, error) {
	fr.call.args, fr.call.params = nil, nil
	result := fr.call.result
	if result.Type >= typeHeapFirst {
		result = Any{}
		dl.Call(s.decref, uintptr(fr.call.result.Bits)) // operators of aiter return no objects, those of other projects may
	}
	if status == 0 {
		return result, nil
	}
	if fr.call.err == 0 {
		return Any{}, &CallError{Op: f.op, Kind: "RuntimeError", Message: fmt.Sprintf("%s: returned status %d without an error", f.op, status)}
	}
	err := &CallError{Op: f.op, Kind: errorText(fr.call.err, errorKind), Message: errorText(fr.call.err, errorMessage)}
	dl.Call(s.decref, fr.call.err)
	return Any{}, err
}

// Byte offsets of texts in struct Error of csrc/support/aiter_ffi.cpp.
const (
	errorKind    = 24
	errorMessage = 40
)

// errorText copies the text, an address and a length, at an offset of an error object.
func errorText(object, offset uintptr) string {
	cell := (*struct {
		data *byte
		size uintptr
	})(dl.Pointer(object + offset))
	return strings.Clone(unsafe.String(cell.data, cell.size))
}
