package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/tensor/safetensors"
)

// file returns a file with the header and the number of bytes of data.
func file(header string, data int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), make([]byte, data)...)
}

func read(data []byte) (map[string]*tensor.Tensor, error) {
	return safetensors.Read(bytes.NewReader(data), int64(len(data)))
}

func TestRoundTrip(t *testing.T) {
	all := map[string]*tensor.Tensor{}
	for _, dt := range append(tensor.DTypes(), tensor.Float8E4M3FN, tensor.Float8E5M2, tensor.Float8E8M0FNU) {
		x, err := tensor.FromFloat64s(dt, []float64{0, 1, 1, 0, 1, 1}, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		all[dt.String()] = x
	}
	scalar, errScalar := tensor.Of([]float32{7})
	empty, errEmpty := tensor.New(tensor.Int64, 0, 4)
	turned, errTurned := all["float32"].Transpose(0, 1)
	if err := errors.Join(errScalar, errEmpty, errTurned); err != nil {
		t.Fatal(err)
	}
	all["scalar"], all["empty"], all["turned"] = scalar, empty, turned
	var out bytes.Buffer
	if err := safetensors.Write(&out, all); err != nil {
		t.Fatal(err)
	}
	got, err := read(out.Bytes())
	if err != nil || len(got) != len(all) {
		t.Fatalf("%d of %d tensors, %v", len(got), len(all), err)
	}
	for name, want := range all {
		x := got[name]
		a, errA := want.Float64s()
		b, errB := x.Float64s()
		if errors.Join(errA, errB) != nil || !slices.Equal(a, b) || x.DType() != want.DType() || !slices.Equal(x.Shape(), want.Shape()) {
			t.Errorf("%s: %v %v, want %v %v", name, x, b, want, a)
		}
	}
}

// The bytes of a file that the Python package writes for {"b": int32 [1, 2], "a": float16 [[1.0]]}, with metadata.
func TestReadOther(t *testing.T) {
	header := `{"__metadata__":{"format":"pt"},"b":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F16","shape":[1,1],` +
		`"data_offsets":[8,10]}} `
	data := append(file(header, 0), 1, 0, 0, 0, 2, 0, 0, 0, 0x00, 0x3c)
	got, err := read(data)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	for name, want := range map[string][]float64{"a": {1}, "b": {1, 2}} {
		if v, err := got[name].Float64s(); err != nil || !slices.Equal(v, want) {
			t.Errorf("%s is %v, %v, want %v", name, v, err, want)
		}
	}
}

func TestWrongFiles(t *testing.T) {
	entry := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"x":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
	}
	for want, data := range map[string][]byte{
		"it is not a JSON object":                  file("[]", 0),
		"its length is 99 bytes, expected at most": append(binary.LittleEndian.AppendUint64(nil, 99), "{}"...),
		"its length is 18446744073709551615 bytes": binary.LittleEndian.AppendUint64(nil, 1<<64-1),
		`element type "F8", expected one of [BF16`: file(entry("F8", "[1]", "[0,1]"), 1),
		"its shape":                                file(entry("F32", "[-1]", "[0,4]"), 4),
		"data_offsets [0 5], expected 4 bytes":     file(entry("F32", "[1]", "[0,5]"), 5),
		"data_offsets [0], expected 4 bytes":       file(entry("F32", "[1]", "[0]"), 4),
		"it begins at byte 4":                      file(entry("F32", "[1]", "[4,8]"), 8),
		"it ends at byte 4 of the data, which has": file(entry("F32", "[1]", "[0,4]"), 3),
		"have 4 bytes, but the file has 6":         file(entry("F32", "[1]", "[0,4]"), 6),
		"it ends at byte 4096000000000":            file(entry("F32", "[1024000000000]", "[0,4096000000000]"), 6),
	} {
		_, err := read(data)
		if bad, ok := errors.AsType[*safetensors.FormatError](err); !ok || !strings.Contains(bad.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := safetensors.Read(strings.NewReader("\x02"), 1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a truncated file: %v", err)
	}
	whole := file(entry("F32", "[1]", "[0,4]"), 4)
	if _, err := safetensors.Read(bytes.NewReader(whole[:len(whole)-1]), int64(len(whole))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that shrinks: %v", err)
	}
	x, err := tensor.New(tensor.Float32, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := safetensors.Write(io.Discard, map[string]*tensor.Tensor{"__metadata__": x}); err == nil {
		t.Error("a reserved name was written")
	}
}

// Any input is an error, or tensors that are written and read again.
func FuzzRead(f *testing.F) {
	f.Add(file(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4))
	f.Add(file(`{"x":{"dtype":"BOOL","shape":[2],"data_offsets":[1,3]},"y":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := read(data)
		if err != nil {
			return
		}
		if _, reserved := tensors[""]; reserved {
			return
		}
		var out bytes.Buffer
		if err := safetensors.Write(&out, tensors); err != nil {
			t.Fatal(err)
		}
		if again, err := read(out.Bytes()); err != nil || len(again) != len(tensors) {
			t.Errorf("written again: %d of %d tensors, %v", len(again), len(tensors), err)
		}
	})
}
