package ffi_test

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/aiter-go/aiter/internal/ffi"
)

// TestResults calls operators with lists and results, and with lists in both forms of TVM FFI.
func TestResults(t *testing.T) {
	b := open(t)
	numbers := []int64{3, -4, 1 << 40}
	list, memory := ffi.IntList(numbers)
	none, noMemory := ffi.IntList(nil)
	negative, negativeMemory := ffi.IntList([]int64{-2})
	array, arrayMemory := anyArray(ffi.Int(3), ffi.Int(-4), ffi.Bool(true))
	floats, floatsMemory := anyArray(ffi.Int(3), ffi.Float(1))
	for _, c := range []struct {
		op   string
		args []any
		want any    // nil: an error
		err  string // with this text
	}{
		{"list", []any{list}, int64(3 - 8 + 3<<40), ""},
		{"list", []any{none}, int64(0), ""},
		{"list", []any{nil}, int64(-1), ""},
		{"list", []any{array}, int64(3 - 8 + 3), ""},
		{"list", []any{floats}, nil, "argument 'numbers': expected int[], got float as element 1"},
		{"list", []any{negative}, nil, "ValueError: list: first is -2"},
		{"list", []any{7}, nil, "argument 'numbers': expected int[], got int"},
		{"list", nil, nil, "'numbers' is missing"},
		{"both", []any{true, true}, true, ""},
		{"both", []any{true, false}, false, ""},
		{"half", []any{-2.5}, -1.25, ""},
		{"fail", []any{4}, nil, "number 4"},
	} {
		f, err := b.echo.Func(c.op)
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.support.CallReturning(f, ffi.Stream{}, pack(t, c.args))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s%v: error %v, want %q", c.op, c.args, err, c.err)
			}
			continue
		}
		if v, ok := got.Value(); err != nil || !ok || v != c.want {
			t.Errorf("%s%v: got %v, %v, want %v", c.op, c.args, v, err, c.want)
		}
	}
	if v, ok := ffi.None().Value(); ok {
		t.Errorf("None has the value %v", v)
	}
	for _, m := range []any{memory, noMemory, negativeMemory, arrayMemory, floatsMemory} {
		runtime.KeepAlive(m)
	}
}

// anyArray packs TVM FFI's Array object.
func anyArray(items ...ffi.Any) (ffi.Any, any) {
	object := &struct {
		count     uint64
		typeIndex int32
		_         uint32
		deleter   uintptr
		data      *ffi.Any
		size      int64
		capacity  int64
		free      uintptr
	}{count: 1<<30 | 1<<32, typeIndex: 71, data: &items[0], size: int64(len(items)), capacity: int64(len(items))}
	return ffi.Any{Type: 71, Bits: uint64(uintptr(unsafe.Pointer(object)))}, object
}

// TestResultAllocations checks that a call with a result allocates as little as any C call, and a list its object only.
func TestResultAllocations(t *testing.T) {
	b := open(t)
	f, err := b.echo.Func("both")
	if err != nil {
		t.Fatal(err)
	}
	args := []ffi.Any{ffi.Bool(true), ffi.Bool(true)}
	if n := testing.AllocsPerRun(100, func() { b.support.CallReturning(f, ffi.Stream{}, args) }); n > 1 {
		t.Errorf("%v allocations a call, want 1, of the C call", n)
	}
	numbers := []int64{1, 2}
	var keep unsafe.Pointer
	if n := testing.AllocsPerRun(100, func() { _, keep = ffi.IntList(numbers) }); n > 1 {
		t.Errorf("%v allocations a list, want 1", n)
	}
	runtime.KeepAlive(keep)
}
