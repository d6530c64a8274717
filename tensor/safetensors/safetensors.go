// Package safetensors reads and writes .safetensors files: named tensors with a JSON header.
// The format is that of github.com/huggingface/safetensors.
package safetensors

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/aiter-go/aiter/internal/filedata"
	"github.com/aiter-go/aiter/tensor"
)

const (
	// MaxHeader is the largest length of a header in bytes, which the format defines.
	MaxHeader = 100 << 20

	metadata  = "__metadata__" // the key of the header whose entry does not describe a tensor
	alignment = 8              // of the data in the file, in bytes
)

// FormatError reports a file that is not a valid .safetensors file, or a tensor that the format cannot represent.
type FormatError struct {
	Name   string // of the tensor; "" for the header
	Reason string
	Err    error // the error of the JSON or of the shape, or nil
}

func (e *FormatError) Error() string {
	what := "header"
	if e.Name != "" {
		what = fmt.Sprintf("tensor %q", e.Name)
	}
	if e.Err != nil {
		return fmt.Sprintf("safetensors: %s: %s: %v", what, e.Reason, e.Err)
	}
	return fmt.Sprintf("safetensors: %s: %s", what, e.Reason)
}

// Unwrap returns the cause, or nil.
func (e *FormatError) Unwrap() error { return e.Err }

// entry describes a tensor in the header.
type entry struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"` // the first byte of the tensor in the data, and the byte after its last one
}

// dtypes maps the format's names of element types to the types.
func dtypes() map[string]tensor.DType {
	return map[string]tensor.DType{
		"F64": tensor.Float64, "F32": tensor.Float32, "F16": tensor.Float16, "BF16": tensor.BFloat16,
		"I64": tensor.Int64, "I32": tensor.Int32, "I16": tensor.Int16, "I8": tensor.Int8,
		"U64": tensor.UInt64, "U32": tensor.UInt32, "U16": tensor.UInt16, "U8": tensor.UInt8, "BOOL": tensor.Bool,
		"F8_E4M3": tensor.Float8E4M3FN, "F8_E5M2": tensor.Float8E5M2, "F8_E8M0": tensor.Float8E8M0FNU,
	}
}

// Read reads all tensors of a file of size bytes, by name. The errors are *FormatError, those of tensor.New and those of r; for
// a file that ends early, io.ErrUnexpectedEOF. A header that describes more or fewer bytes than size is a *FormatError, so that
// a wrong header does not make Read allocate more memory than the file has bytes.
func Read(r io.Reader, size int64) (map[string]*tensor.Tensor, error) {
	in := bufio.NewReader(r)
	header, rest, err := readHeader(in, size)
	if err != nil {
		return nil, err
	}
	order := slices.SortedFunc(maps.Keys(header), func(a, b string) int {
		return slices.Compare(header[a].Offsets, header[b].Offsets)
	})
	tensors, at := map[string]*tensor.Tensor{}, int64(0)
	for _, name := range order {
		e := header[name]
		if e.Offsets[0] != at {
			return nil, &FormatError{Name: name, Reason: fmt.Sprintf(
				"it begins at byte %d of the data, expected %d, the end of the tensor before it", e.Offsets[0], at)}
		}
		at = e.Offsets[1]
		if at > rest {
			return nil, &FormatError{Name: name, Reason: fmt.Sprintf("it ends at byte %d of the data, which has %d bytes", at, rest)}
		}
		if tensors[name], err = readTensor(in, e); err != nil {
			return nil, fmt.Errorf("safetensors: tensor %q: %w", name, err)
		}
	}
	if at != rest {
		return nil, &FormatError{Reason: fmt.Sprintf("its tensors have %d bytes, but the file has %d bytes of data", at, rest)}
	}
	return tensors, nil
}

// readHeader reads the header and checks each entry. rest is the number of bytes of data.
func readHeader(r io.Reader, size int64) (header map[string]entry, rest int64, err error) {
	var length uint64
	if err := binary.Read(r, binary.LittleEndian, &length); err != nil {
		return nil, 0, fmt.Errorf("safetensors: header: %w", filedata.Unexpected(err))
	}
	const prefix = 8
	if length > MaxHeader || int64(length) > size-prefix {
		return nil, 0, &FormatError{Reason: fmt.Sprintf("its length is %d bytes, expected at most %d", length, min(MaxHeader, size-prefix))}
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, 0, fmt.Errorf("safetensors: header: %w", filedata.Unexpected(err))
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, 0, &FormatError{Reason: "it is not a JSON object", Err: err}
	}
	delete(raw, metadata)
	header = map[string]entry{}
	for name, data := range raw {
		if header[name], err = parseEntry(name, data); err != nil {
			return nil, 0, err
		}
	}
	return header, size - prefix - int64(length), nil
}

// parseEntry reads and checks the entry of a tensor in the header.
func parseEntry(name string, data []byte) (e entry, err error) {
	if err := json.Unmarshal(data, &e); err != nil {
		return e, &FormatError{Name: name, Reason: "its entry is not valid", Err: err}
	}
	dt, known := dtypes()[e.DType]
	if !known {
		return e, &FormatError{Name: name, Reason: fmt.Sprintf("element type %q, expected one of %v", e.DType,
			slices.Sorted(maps.Keys(dtypes())))}
	}
	size, err := tensor.ByteSize(dt, e.Shape...)
	if err != nil {
		return e, &FormatError{Name: name, Reason: "its shape is not valid", Err: err}
	}
	if len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1]-e.Offsets[0] != size {
		return e, &FormatError{Name: name, Reason: fmt.Sprintf("data_offsets %v, expected %d bytes for %s%v", e.Offsets, size, e.DType, e.Shape)}
	}
	return e, nil
}

func readTensor(r io.Reader, e entry) (*tensor.Tensor, error) {
	dt := dtypes()[e.DType]
	t, err := tensor.New(dt, e.Shape...)
	if err != nil {
		return nil, err
	}
	data, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, filedata.Unexpected(err)
	}
	filedata.Decode(data, dt, false)
	return t, nil
}

// Write writes host tensors with any strides, sorted by name. The errors are those of w, *tensor.HostError, *tensor.FreedError,
// *tensor.MemoryError, and *FormatError for an empty or reserved name or an element type that the format does not have.
func Write(w io.Writer, tensors map[string]*tensor.Tensor) error {
	names := slices.Sorted(maps.Keys(tensors))
	header, err := formatHeader(names, tensors)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if err := binary.Write(out, binary.LittleEndian, uint64(len(header))); err != nil {
		return fmt.Errorf("safetensors: write header: %w", err)
	}
	if _, err := out.Write(header); err != nil {
		return fmt.Errorf("safetensors: write header: %w", err)
	}
	for _, name := range names {
		if err := writeData(out, tensors[name]); err != nil {
			return fmt.Errorf("safetensors: write tensor %q: %w", name, err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("safetensors: write data: %w", err)
	}
	return nil
}

// formatHeader returns the header, padded with spaces to the alignment.
func formatHeader(names []string, tensors map[string]*tensor.Tensor) ([]byte, error) {
	byType := map[tensor.DType]string{}
	for name, dt := range dtypes() {
		byType[dt] = name
	}
	header, at := map[string]entry{}, int64(0)
	for _, name := range names {
		t := tensors[name]
		word, known := byType[t.DType()]
		switch {
		case name == "":
			return nil, &FormatError{Reason: "a tensor has the empty name; give each tensor a name"}
		case name == metadata:
			return nil, &FormatError{Name: name, Reason: "the format reserves this name; choose another"}
		case !known:
			return nil, &FormatError{Name: name, Reason: fmt.Sprintf("element type %s, expected a type that the format has: %v", t.DType(),
				slices.Sorted(maps.Keys(dtypes())))}
		}
		end := at + t.Numel()*t.DType().Size()
		header[name] = entry{word, append([]int64{}, t.Shape()...), []int64{at, end}}
		at = end
	}
	text, err := json.Marshal(header) // keys are sorted
	if err != nil {
		return nil, err
	}
	if pad := len(text) % alignment; pad > 0 {
		text = append(text, bytes.Repeat([]byte(" "), alignment-pad)...)
	}
	return text, nil
}

func writeData(w io.Writer, t *tensor.Tensor) error {
	data, err := t.Bytes()
	if layout := (*tensor.LayoutError)(nil); errors.As(err, &layout) || err == nil && filedata.BigEndian() {
		if t, err = t.Compact(); err == nil {
			data, err = t.Bytes()
		}
	}
	if err != nil {
		return err
	}
	filedata.Reorder(data, t.DType(), false)
	_, err = w.Write(data)
	return err
}
