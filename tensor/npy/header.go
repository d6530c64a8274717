package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/aiter-go/aiter/internal/filedata"
	"github.com/aiter-go/aiter/tensor"
)

// header is the content of a file's header.
type header struct {
	dtype     tensor.DType
	bigEndian bool
	fortran   bool // the first dimension is innermost, not the last
	shape     []int64
}

// strides returns the strides of the data in the file, in elements; nil for row-major.
func (h header) strides() []int64 {
	if !h.fortran {
		return nil
	}
	out := make([]int64, len(h.shape))
	step := int64(1)
	for i, n := range h.shape {
		out[i] = step
		step *= max(n, 1)
	}
	return out
}

func readHeader(r io.Reader) (header, error) {
	var lead [8]byte
	if _, err := io.ReadFull(r, lead[:]); err != nil {
		return header{}, fmt.Errorf("npy: magic: %w", filedata.Unexpected(err))
	}
	if string(lead[:6]) != magic {
		return header{}, &FormatError{Field: "magic", Got: fmt.Sprintf("%q", lead[:6]), Want: fmt.Sprintf("%q", magic)}
	}
	n, err := headerLength(r, lead[6])
	if err != nil {
		return header{}, err
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return header{}, fmt.Errorf("npy: header of %d bytes: %w", n, filedata.Unexpected(err))
	}
	return parseHeader(string(text))
}

// headerLength reads the length of the header in bytes. It has 16 bits in version 1, 32 bits in versions 2 and 3.
func headerLength(r io.Reader, version byte) (uint32, error) {
	if version < 1 || version > 3 {
		return 0, &FormatError{Field: "version", Got: fmt.Sprint(version), Want: "1, 2 or 3"}
	}
	var raw [4]byte
	width := 4
	if version == 1 {
		width = 2
	}
	if _, err := io.ReadFull(r, raw[:width]); err != nil {
		return 0, fmt.Errorf("npy: header length: %w", filedata.Unexpected(err))
	}
	n := binary.LittleEndian.Uint32(raw[:])
	if n > MaxHeader {
		return 0, &FormatError{Field: "header length", Got: fmt.Sprint(n), Want: fmt.Sprintf("at most %d bytes", MaxHeader)}
	}
	return n, nil
}

// descriptors maps NumPy's names of element types, without the byte order, to the types.
func descriptors() map[string]tensor.DType {
	return map[string]tensor.DType{
		"f2": tensor.Float16, "f4": tensor.Float32, "f8": tensor.Float64, "V2": tensor.BFloat16,
		"i1": tensor.Int8, "i2": tensor.Int16, "i4": tensor.Int32, "i8": tensor.Int64,
		"u1": tensor.UInt8, "u2": tensor.UInt16, "u4": tensor.UInt32, "u8": tensor.UInt64, "b1": tensor.Bool,
	}
}

// parseDescr reads a descriptor such as '<f4', '|u1' or '>i8'. big reports whether the data is in big-endian order.
func parseDescr(s string) (dt tensor.DType, big bool, err error) {
	if s == "bfloat16" {
		return tensor.BFloat16, filedata.BigEndian(), nil
	}
	order, name := "", s
	if s != "" && strings.ContainsRune("<>=|", rune(s[0])) {
		order, name = s[:1], s[1:]
	}
	dt, known := descriptors()[name]
	orderless := known && (dt.Size() == 1 || dt == tensor.BFloat16)
	if !known || (order == "|" || order == "") && !orderless {
		const want = "a float, integer or bool type such as <f2 <f4 <f8 <i4 <i8 |u1 |b1, or <V2 for bfloat16"
		return 0, false, &FormatError{Field: "descr", Got: fmt.Sprintf("%q", s), Want: want}
	}
	switch order {
	case "<":
		return dt, false, nil
	case ">":
		return dt, true, nil
	}
	return dt, filedata.BigEndian(), nil
}

// descr returns the descriptor of an element type. ok is false if .npy files do not have the type.
func descr(dt tensor.DType) (text string, ok bool) {
	for name, known := range descriptors() {
		if known != dt {
			continue
		}
		switch {
		case dt.Size() == 1:
			return "|" + name, true
		case filedata.BigEndian():
			return ">" + name, true
		}
		return "<" + name, true
	}
	return "", false
}

// formatHeader returns the bytes before the data. Spaces pad the header so that the
// data begin at a multiple of 64 bytes, as in NumPy's files. A newline ends the header.
func formatHeader(t *tensor.Tensor) ([]byte, error) {
	name, ok := descr(t.DType())
	if !ok {
		return nil, &tensor.ElementError{DType: t.DType(), Want: "float16, float32, float64, bfloat16, bool or an integer type for a .npy file"}
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", name, formatShape(t.Shape()))
	const lead = len(magic) + 2 + 2
	pad := 63 - (lead+len(text))%64
	text += strings.Repeat(" ", pad) + "\n"
	out := append([]byte(magic), 1, 0)
	out = binary.LittleEndian.AppendUint16(out, uint16(len(text))) // the length fits 16 bits: MaxRank sizes have at most 19 digits each
	return append(out, text...), nil
}

// formatShape writes a Python tuple: (), (3,), (3, 4).
func formatShape(shape []int64) string {
	words := make([]string, len(shape))
	for i, n := range shape {
		words[i] = fmt.Sprint(n)
	}
	if len(words) == 1 {
		return "(" + words[0] + ",)"
	}
	return "(" + strings.Join(words, ", ") + ")"
}
