package npy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/tensor/npy"
)

func read(t *testing.T, name string) (*tensor.Tensor, error) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".npy"))
	if err != nil {
		t.Fatal(err)
	}
	return npy.Read(bytes.NewReader(data))
}

// The files are NumPy's own; testdata/generate.py wrote them.
func TestNumPyFiles(t *testing.T) {
	count := []float64{0, 1, 2, 3, 4, 5}
	for name, c := range map[string]struct {
		dtype  tensor.DType
		shape  []int64
		values []float64
	}{
		"float16": {tensor.Float16, []int64{2, 3}, count}, "float32": {tensor.Float32, []int64{2, 3}, count},
		"float64": {tensor.Float64, []int64{2, 3}, count}, "bfloat16": {tensor.BFloat16, []int64{2, 3}, count},
		"int8": {tensor.Int8, []int64{2, 3}, count}, "int16": {tensor.Int16, []int64{2, 3}, count},
		"int32": {tensor.Int32, []int64{2, 3}, count}, "int64": {tensor.Int64, []int64{2, 3}, count},
		"uint8": {tensor.UInt8, []int64{2, 3}, count}, "uint16": {tensor.UInt16, []int64{2, 3}, count},
		"uint32": {tensor.UInt32, []int64{2, 3}, count}, "uint64": {tensor.UInt64, []int64{2, 3}, count},
		"bool":    {tensor.Bool, []int64{2, 3}, []float64{0, 1, 0, 1, 0, 1}},
		"fortran": {tensor.Float32, []int64{2, 3}, count}, "big_endian": {tensor.Float32, []int64{2, 3}, count},
		"big_endian_fortran": {tensor.Int64, []int64{2, 3}, count},
		"version2":           {tensor.Float32, []int64{2, 3}, count}, "version3": {tensor.Float32, []int64{2, 3}, count},
		"scalar": {tensor.Float32, []int64{}, []float64{7}}, "vector": {tensor.Float32, []int64{3}, count[:3]},
		"empty": {tensor.Float32, []int64{0, 4}, []float64{}},
	} {
		x, err := read(t, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := x.Float64s()
		if err != nil || x.DType() != c.dtype || !slices.Equal(x.Shape(), c.shape) || !slices.Equal(got, c.values) {
			t.Errorf("%s: %s, %v, %v", name, x, got, err)
		}
	}
	if x, err := read(t, "fortran"); err != nil || !slices.Equal(x.Strides(), []int64{1, 2}) {
		t.Errorf("Fortran order: %v, %v", x, err)
	}
}

func TestUnsupportedFiles(t *testing.T) {
	for _, name := range []string{"complex", "structured"} {
		var fe *npy.FormatError
		if x, err := read(t, name); !errors.As(err, &fe) || fe.Field != "descr" {
			t.Errorf("%s: %v, %v", name, x, err)
		}
	}
}

// The written files are, byte for byte, those of NumPy.
func TestWriteEqualsNumPy(t *testing.T) {
	for _, name := range []string{"float16", "float32", "float64", "bfloat16", "int8", "int32", "int64", "uint8", "bool", "scalar",
		"vector", "empty"} {
		want, err := os.ReadFile(filepath.Join("testdata", name+".npy"))
		if err != nil {
			t.Fatal(err)
		}
		x, err := npy.Read(bytes.NewReader(want))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := npy.Write(&got, x); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %v\ngot  %q\nwant %q", name, err, got.Bytes(), want)
		}
	}
}

func TestWriteViews(t *testing.T) {
	x, err := read(t, "fortran")
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := npy.Write(&buf, x); err != nil {
		t.Fatal(err)
	}
	buf.WriteString("what follows")
	back, err := npy.Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := back.Float64s(); !back.Contiguous() || !slices.Equal(got, []float64{0, 1, 2, 3, 4, 5}) {
		t.Errorf("%s: %v", back, got)
	}
	if buf.String() != "what follows" {
		t.Errorf("the reader took bytes beyond the array: %q is left", buf.String())
	}
}

func TestWriteErrors(t *testing.T) {
	x, err := tensor.New(tensor.Float32, 5000)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	_ = r.CloseWithError(io.ErrClosedPipe)
	if err := npy.Write(w, x); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a writer that fails: %v", err)
	}
	gpu := tensor.ForeignStorage(0x1000, 16, tensor.Device{Type: tensor.CUDA}, nil)
	y, err := tensor.View(gpu, tensor.Float32, []int64{4}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var he *tensor.HostError
	if err := npy.Write(io.Discard, y); !errors.As(err, &he) {
		t.Errorf("a tensor on a GPU: %v", err)
	}
	odd, err := tensor.View(x.Storage(), tensor.MakeDType(tensor.CodeFloat, 32, 4), []int64{4}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ee *tensor.ElementError
	if err := npy.Write(io.Discard, odd); !errors.As(err, &ee) {
		t.Errorf("a type without a name: %v", err)
	}
}

// file makes a version 1 file with the header text given.
func file(header string, data ...byte) []byte {
	out := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	return append(append(out, header...), data...)
}

func TestHeaders(t *testing.T) {
	one := []byte{0, 0, 0x80, 0x3f}
	for header, wantErr := range map[string]string{
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }  \n":                         "",
		`{"shape":(1L,),"fortran_order":True,"descr":"<f4"}`:                                    "",
		"{'descr': '<f4', 'fortran_order': False, 'shape': ()}":                                 "",
		"{'descr': '=f4', 'fortran_order': False, 'shape': (1,1,)}":                             "",
		"{'descr': 'bfloat16', 'fortran_order': False, 'shape': (2,)}":                          "",
		"{'descr': '|V2', 'fortran_order': False, 'shape': (2,)}":                               "",
		"{'descr': '|f4', 'fortran_order': False, 'shape': (1,)}":                               "descr",
		"{'descr': 'f4', 'fortran_order': False, 'shape': (1,)}":                                "descr",
		"{'descr': '<f5', 'fortran_order': False, 'shape': (1,)}":                               "descr",
		"{'descr': '', 'fortran_order': False, 'shape': (1,)}":                                  "descr",
		"{'descr': '<O', 'fortran_order': False, 'shape': (1,)}":                                "descr",
		"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}":                      "descr",
		"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}":                                   "fortran_order",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}":                                "tuple such as (3,)",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}":                              "comma",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}":                              "shape",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}":                                "shape",
		"{'descr': '<f4', 'fortran_order': False, 'shape': [1]}":                                "'('",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}":            "fits 64 bits",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}":           "fits in memory",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}":                   "at most 1099511627776 bytes",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (" + strings.Repeat("1,", 33) + ")}": "at most 32 dimensions",
		"{'descr': '<f4', 'fortran_order': False}":                                              "no key 'shape'",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}":                    "not 'more'",
		"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}":               "once",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x":                             "nothing after",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)":                                "'}'",
		"{'descr' '<f4'}": "':'",
		"{'descr: '<f4'}": "':'",
		"{'de\\x41': 1}":  "escapes",
		"":                "'{'",
		"import os":       "'{'",
	} {
		x, err := npy.Read(bytes.NewReader(file(header, one...)))
		var fe *npy.FormatError
		switch {
		case wantErr == "":
			if err != nil {
				t.Errorf("%s: %v", header, err)
			}
		case !errors.As(err, &fe) || !strings.Contains(err.Error(), wantErr):
			t.Errorf("%s: %v, %v; want an error with %q", header, x, err, wantErr)
		}
	}
}

func TestPreamble(t *testing.T) {
	good := file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 0, 0, 0x80, 0x3f)
	for n := range good {
		if x, err := npy.Read(bytes.NewReader(good[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v, %v", n, len(good), x, err)
		}
	}
	for name, data := range map[string][]byte{
		"magic":         append([]byte("\x93NUMPX"), good[6:]...),
		"version":       append([]byte("\x93NUMPY\x04\x00"), good[8:]...),
		"header length": []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"),
	} {
		var fe *npy.FormatError
		if _, err := npy.Read(bytes.NewReader(data)); !errors.As(err, &fe) || fe.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("broken")
	if _, err := npy.Read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if _, err := npy.Read(iotest.OneByteReader(bytes.NewReader(good))); err != nil {
		t.Errorf("byte by byte: %v", err)
	}
}

// Read does not allocate a terabyte for a short file whose header gives that size.
func TestLargeSizeInShortFile(t *testing.T) {
	data := file("{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776,)}", make([]byte, 4096)...)
	if _, err := npy.Read(bytes.NewReader(data)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

// Data larger than the first chunk is read into several allocations.
func TestLarge(t *testing.T) {
	const n = 3<<20 + 5
	x, err := tensor.New(tensor.UInt8, n)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] = byte(i * 31)
	}
	var buf bytes.Buffer
	if err := npy.Write(&buf, x); err != nil {
		t.Fatal(err)
	}
	back, err := npy.Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := back.Bytes(); err != nil || !bytes.Equal(got, raw) || back.Ptr()%64 != 0 {
		t.Errorf("3 MiB came back changed or unaligned (%#x): %v", back.Ptr(), err)
	}
}

func TestBoolIsZeroOrOne(t *testing.T) {
	x, err := npy.Read(bytes.NewReader(file("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", 0, 2, 255)))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := x.Bytes(); err != nil || !bytes.Equal(raw, []byte{0, 1, 1}) {
		t.Errorf("%v, %v", raw, err)
	}
}

// FuzzRead checks that Read does not panic, and that a tensor that it reads is equal after Write and Read.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.npy")
	if err != nil || len(files) == 0 {
		f.Fatal("no files in testdata", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := npy.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var buf bytes.Buffer
		if err := npy.Write(&buf, x); err != nil {
			t.Fatalf("%s was read but not written: %v", x, err)
		}
		y, err := npy.Read(&buf)
		if err != nil {
			t.Fatalf("%s was written but not read: %v", x, err)
		}
		a, b := raw(t, x), raw(t, y)
		if x.DType() != y.DType() || !slices.Equal(x.Shape(), y.Shape()) || !bytes.Equal(a, b) {
			t.Fatalf("%s became %s", x, y)
		}
	})
}

func raw(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	c, err := x.Compact()
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ExampleWrite() {
	x, err := tensor.Of([]float32{1, 2, 3, 4}, 2, 2)
	if err != nil {
		panic(err)
	}
	var file bytes.Buffer
	if err := npy.Write(&file, x); err != nil {
		panic(err)
	}
	y, err := npy.Read(&file)
	if err != nil {
		panic(err)
	}
	fmt.Println(y)
	// Output: float32[2 2] on cpu [[1 2] [3 4]]
}
