// Package npy reads and writes NumPy's .npy files, format versions 1 to 3.
//
// NumPy itself has no bfloat16. Write stores it as the ml_dtypes package does: two
// raw bytes with the descriptor '<V2'. Read accepts '<V2', '|V2' and 'bfloat16'.
package npy

import (
	"bufio"
	"fmt"
	"io"

	"github.com/aiter-go/aiter/internal/filedata"
	"github.com/aiter-go/aiter/tensor"
)

const (
	magic = "\x93NUMPY"
	// MaxHeader is the largest length of a header that Read accepts, in bytes.
	MaxHeader = 64 << 10
	// MaxData is the largest amount of data that Read accepts, in bytes.
	MaxData = 1 << 40
	// firstChunk is the size, in bytes, of the first allocation for data. A short file
	// whose header gives a large size allocates no more.
	firstChunk = 1 << 20
)

// Read reads one array and leaves the bytes after it unread. An array in Fortran order
// becomes a tensor whose first dimension has the stride 1. Elements are converted to the
// machine's byte order. The errors are *FormatError, *tensor.MemoryError and those of r; for
// a file that ends early, io.ErrUnexpectedEOF.
func Read(r io.Reader) (*tensor.Tensor, error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	size, err := tensor.ByteSize(h.dtype, h.shape...)
	if err != nil {
		return nil, &FormatError{Field: "shape", Got: fmt.Sprint(h.shape), Want: "a shape that fits in memory", Err: err}
	}
	if size > MaxData {
		got := fmt.Sprintf("%v of %s, %d bytes", h.shape, h.dtype, size)
		return nil, &FormatError{Field: "shape", Got: got, Want: fmt.Sprintf("at most %d bytes", int64(MaxData))}
	}
	s, err := readData(r, size)
	if err != nil {
		return nil, fmt.Errorf("npy: data of %s%v: %w", h.dtype, h.shape, err)
	}
	if err := fixBytes(s, h); err != nil {
		return nil, err
	}
	return tensor.View(s, h.dtype, h.shape, h.strides(), 0)
}

// readData reads size bytes. After the first chunk it allocates at most four times the bytes
// that it has read, so that a large size in the header of a short file does not cost memory.
func readData(r io.Reader, size int64) (*tensor.Storage, error) {
	var done []byte
	for have := min(size, firstChunk); ; have = min(size, have*4) {
		s, err := tensor.HostStorage(have)
		if err != nil {
			return nil, err
		}
		buf, err := s.Bytes()
		if err != nil {
			return nil, err
		}
		n := copy(buf, done)
		if _, err := io.ReadFull(r, buf[n:]); err != nil {
			return nil, filedata.Unexpected(err)
		}
		if have == size {
			return s, nil
		}
		done = buf
	}
}

// fixBytes converts the file's bytes to the machine's byte order, and bools to 0 or 1.
func fixBytes(s *tensor.Storage, h header) error {
	buf, err := s.Bytes()
	if err != nil {
		return err
	}
	filedata.Decode(buf, h.dtype, h.bigEndian)
	return nil
}

// Write writes a host tensor with any strides. The file has format version 1, row-major order
// and the machine's byte order. The errors are those of w, *tensor.HostError,
// *tensor.FreedError, *tensor.MemoryError and *tensor.ElementError.
func Write(w io.Writer, t *tensor.Tensor) error {
	head, err := formatHeader(t)
	if err != nil {
		return err
	}
	if !t.Contiguous() {
		if t, err = t.Compact(); err != nil {
			return err
		}
	}
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("npy: write header: %w", err)
	}
	if _, err := out.Write(data); err != nil {
		return fmt.Errorf("npy: write data: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("npy: write data: %w", err)
	}
	return nil
}
