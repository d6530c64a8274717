// Package npy reads and writes NumPy's .npy files, format versions 1 to 3.
//
// bfloat16, which NumPy has no type of its own for, is written as the ml_dtypes
// package does, two raw bytes with the descriptor '<V2'. Reading takes '<V2',
// '|V2' and 'bfloat16' as bfloat16.
package npy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/aiter-go/aiter/tensor"
)

const (
	magic = "\x93NUMPY"
	// MaxHeader is the longest header that Read accepts, in bytes.
	MaxHeader = 64 << 10
	// MaxData is the most data that Read accepts, in bytes.
	MaxData = 1 << 40
	// firstChunk bounds what a short file with a boastful header can allocate.
	firstChunk = 1 << 20
)

// Read reads one array, and not a byte beyond it. Fortran order becomes strides;
// other byte orders are turned into the machine's. The errors are *FormatError
// and those of r; a file that ends early gives io.ErrUnexpectedEOF.
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
		return nil, &FormatError{Field: "shape", Got: fmt.Sprintf("%v of %s, %d bytes", h.shape, h.dtype, size), Want: fmt.Sprintf("at most %d bytes", int64(MaxData))}
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

// readData reads size bytes. The memory grows with what has come, so that only
// a file of that size can make it all be allocated.
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
			return nil, unexpected(err)
		}
		if have == size {
			return s, nil
		}
		done = buf
	}
}

// unexpected is for places where the end of the file is always too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fixBytes turns the file's bytes into what the machine and C code expect.
func fixBytes(s *tensor.Storage, h header) error {
	buf, err := s.Bytes()
	if err != nil {
		return err
	}
	if h.dtype == tensor.Bool {
		for i, b := range buf {
			buf[i] = min(b, 1)
		}
	}
	if h.bigEndian != machineBig() {
		swap(buf, int(h.dtype.Size()))
	}
	return nil
}

func machineBig() bool { return binary.NativeEndian.Uint16([]byte{0, 1}) == 1 }

// swap reverses the bytes of every element.
func swap(buf []byte, size int) {
	for ; len(buf) >= size && size > 1; buf = buf[size:] {
		for i, j := 0, size-1; i < j; i, j = i+1, j-1 {
			buf[i], buf[j] = buf[j], buf[i]
		}
	}
}

// Write writes a host tensor in row-major order, with any strides, in format
// version 1 and the machine's byte order. The errors are those of w,
// *tensor.HostError, *tensor.FreedError and *tensor.ElementError.
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
