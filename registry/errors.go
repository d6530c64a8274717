package registry

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/tensor"
)

// ErrClosed is returned by a closed registry and by its operators.
var ErrClosed = errors.New("the registry is closed; open another with registry.Open")

// RemovedError reports a call of an operator that a reload of the configuration
// removed.
type RemovedError struct {
	Op     string
	Module string // the module that declared the operator
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("%s: a change of the configuration removed this operator (from %s); to call it, add it again", e.Op, e.Module)
}

// ArityError reports a call with too few or too many arguments.
type ArityError struct {
	Op            string
	Got, Min, Max int // numbers of arguments
	Schema        string
}

func (e *ArityError) Error() string {
	want := fmt.Sprintf("%d to %d", e.Min, e.Max)
	if e.Min == e.Max {
		want = fmt.Sprint(e.Min)
	}
	return fmt.Sprintf("%s: expected %s arguments, got %d; its schema is %s", e.Op, want, e.Got, e.Schema)
}

// ArgumentError reports a tensor whose shape, element type or strides the configuration does not
// allow for the argument.
type ArgumentError struct {
	Op, Arg       string
	What          string // "shape", "dtype" or "strides"
	Expected, Got string
}

func (e *ArgumentError) Error() string {
	text := fmt.Sprintf("%s: argument '%s': expected %s %s, got %s", e.Op, e.Arg, e.What, e.Expected, e.Got)
	if e.What == "strides" {
		text += "; copy the tensor with Compact"
	}
	return text
}

// TypeError reports an argument whose Go type the schema does not allow, or a number
// that the schema's type cannot represent.
type TypeError struct {
	Op, Arg  string
	Position int    // from 0
	Expected string // the schema's type
	Got      any    // the argument
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("%s: argument %d (%s): expected %s, got %s", e.Op, e.Position+1, e.Arg, goType(e.Expected), e.gotType())
}

// goType names a schema's type and its Go type.
func goType(t string) string {
	switch {
	case strings.HasPrefix(t, "Tensor") && strings.HasSuffix(t, "?"):
		return t + " (a *tensor.Tensor or nil)"
	case strings.HasPrefix(t, "Tensor"):
		return t + " (a *tensor.Tensor)"
	}
	return t
}

func (e *TypeError) gotType() string {
	if isNone(e.Got) {
		return "nil"
	}
	if _, ok := e.Got.(*tensor.Tensor); ok && strings.HasPrefix(e.Expected, "Tensor") {
		return "the zero tensor.Tensor, which has no memory; make one with tensor.New or tensor.View"
	}
	number := strings.HasPrefix(e.Expected, "int") || strings.HasPrefix(e.Expected, "float")
	if v := reflect.ValueOf(e.Got); number && v.CanUint() && v.Uint() > math.MaxInt64 {
		return fmt.Sprintf("%T %d, which is out of range: at most %d", e.Got, v.Uint(), int64(math.MaxInt64))
	}
	if text, ok := e.Got.(string); ok && strings.Contains(text, "\x00") {
		return "string with a NUL byte"
	}
	return fmt.Sprintf("%T", e.Got)
}

// TensorError reports an invalid tensor, such as one whose memory was freed.
type TensorError struct {
	Op, Arg string
	Err     error
}

func (e *TensorError) Error() string { return fmt.Sprintf("%s: argument %s: %v", e.Op, e.Arg, e.Err) }

// Unwrap returns the tensor's error, such as a [*tensor.FreedError].
func (e *TensorError) Unwrap() error { return e.Err }

// MixedDevicesError reports tensors on more than one device.
type MixedDevicesError struct {
	Op          string
	Arg         string
	Device      tensor.Device
	First       string // the first tensor argument
	FirstDevice tensor.Device
}

func (e *MixedDevicesError) Error() string {
	return fmt.Sprintf("%s: argument %s is on %s, but %s is on %s; copy one of them; all tensors of a call must be on one device",
		e.Op, e.Arg, e.Device, e.First, e.FirstDevice)
}

// StreamDeviceError reports a call on a stream of another device.
type StreamDeviceError struct {
	Op              string
	Stream, Tensors tensor.Device
}

func (e *StreamDeviceError) Error() string {
	return fmt.Sprintf("%s: the stream belongs to %s, the tensors are on %s; use a stream of the tensors' device", e.Op, e.Stream, e.Tensors)
}

// OperatorError reports arguments that the operator refused, or a call that failed.
type OperatorError struct {
	Op      string
	Kind    string // a Python exception name: "TypeError", "ValueError", "RuntimeError"
	Message string // names the argument, what was expected, and what was given
	// Arg and About name the wrong argument and the wrong property ("dtype", "rank",
	// "shape", "device", "overlap", else "value"). Both are "" if no single argument
	// is wrong.
	Arg, About string
}

func (e *OperatorError) Error() string { return e.Message }

// operatorError converts an error of the C ABI.
func (o *opVersion) operatorError(err error) error {
	var call *ffi.CallError
	if !errors.As(err, &call) {
		return fmt.Errorf("%s: %w", o.Name(), err)
	}
	e := &OperatorError{Op: o.Name(), Kind: call.Kind, Message: call.Message}
	e.Arg, e.About = faultyArgument(call.Message)
	return e
}

// faultyArgument extracts the argument and the property from messages of the form "op: argument 'x': expected rank 3 ..., got ..."
// and "op: arguments 'x' and 'y': ...". It returns "" for other messages, such as those of exceptions, which may quote other words.
func faultyArgument(message string) (arg, about string) {
	_, rest, _ := strings.Cut(message, ": ")
	word, rest, ok := strings.Cut(rest, "'")
	if !ok || word != "argument " && word != "arguments " {
		return "", ""
	}
	arg, rest, _ = strings.Cut(rest, "'")
	if strings.Contains(rest, "overlap") || strings.Contains(rest, "share memory") {
		return arg, "overlap"
	}
	if strings.HasPrefix(rest, ": is on ") {
		return arg, "device"
	}
	expected, ok := strings.CutPrefix(rest, ": expected ")
	if word, _, _ := strings.Cut(expected, " "); ok && strings.Contains(" dtype rank shape device ", " "+word+" ") {
		return arg, word
	}
	return arg, "value"
}
