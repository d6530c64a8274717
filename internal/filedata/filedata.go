// Package filedata reads and converts the bytes of tensors in files.
package filedata

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// BigEndian reports whether the machine is big-endian.
func BigEndian() bool { return binary.NativeEndian.Uint16([]byte{0, 1}) == 1 }

// Unexpected returns io.ErrUnexpectedEOF in place of io.EOF: the file ends early.
func Unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Decode converts elements of a file to the machine's byte order, and bools to 0 or 1.
func Decode(data []byte, dt tensor.DType, bigEndian bool) {
	if dt == tensor.Bool {
		for i, b := range data {
			data[i] = min(b, 1)
		}
	}
	Reorder(data, dt, bigEndian)
}

// Reorder converts elements between the machine's byte order and that of a file.
func Reorder(data []byte, dt tensor.DType, bigEndian bool) {
	if bigEndian == BigEndian() || dt.Size() < 2 {
		return
	}
	for element := range slices.Chunk(data, int(dt.Size())) {
		slices.Reverse(element)
	}
}
