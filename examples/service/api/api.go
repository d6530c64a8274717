// Package api is shared by the service and its clients. It has the formats of tensors, and checks an answer against the formula.
package api

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"mime"
	"strings"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/tensor/npy"
	"github.com/aiter-go/aiter/tensor/safetensors"
)

// The names of tensors in requests and answers. A .npy file has X or Out only.
const (
	X       = "x"              // (seqlen, dim) or (batch, seqlen, dim)
	Weight  = "weight"         // (groups, width); groups divides dim
	Bias    = "bias"           // (dim)
	Initial = "initial_states" // (batch, dim, width-1), or (dim, width-1) without a batch
	Out     = "out"            // the shape of X
	Final   = "final_states"   // the shape of Initial
)

// Format is a format of tensors, named by its content type.
type Format string

// The formats.
const (
	NPY         Format = "application/x-npy"
	Safetensors Format = "application/x-safetensors"
)

// MaxHeader is the longest header of a request in [Safetensors], in bytes.
const MaxHeader = 64 << 10

// FormatOf returns the format that a Content-Type header names.
func FormatOf(header string) (Format, bool) {
	kind, _, err := mime.ParseMediaType(header)
	f := Format(kind)
	return f, err == nil && (f == NPY || f == Safetensors)
}

// Accepted returns the first format that an Accept header lists; it ignores weights. For an empty header, and for a header that accepts
// any type, it returns usual. It returns false if the header lists none of the formats.
func Accepted(header string, usual Format) (Format, bool) {
	if header == "" {
		return usual, true
	}
	for item := range strings.SplitSeq(header, ",") {
		kind, _, _ := strings.Cut(strings.TrimSpace(item), ";")
		if kind == "*/*" || kind == "application/*" {
			return usual, true
		}
		if f, known := FormatOf(kind); known {
			return f, true
		}
	}
	return "", false
}

// Decode reads the tensors of a request or an answer. A .npy file has no name for its tensor: it gets the name one.
func (f Format) Decode(body []byte, one string) (map[string]*tensor.Tensor, error) {
	if f == Safetensors {
		if len(body) >= 8 && binary.LittleEndian.Uint64(body) > MaxHeader {
			return nil, fmt.Errorf("safetensors: the header has %d bytes, expected at most %d", binary.LittleEndian.Uint64(body), MaxHeader)
		}
		return safetensors.Read(bytes.NewReader(body), int64(len(body)))
	}
	in := bytes.NewReader(body)
	t, err := npy.Read(in)
	if err != nil {
		return nil, err
	}
	if in.Len() > 0 {
		return nil, fmt.Errorf("npy: expected the file to end after the array, got %d bytes more", in.Len())
	}
	return map[string]*tensor.Tensor{one: t}, nil
}

// Encode writes tensors. A .npy file gets only the tensor with the name one.
func (f Format) Encode(w io.Writer, tensors map[string]*tensor.Tensor, one string) error {
	if f == Safetensors {
		return safetensors.Write(w, tensors)
	}
	return npy.Write(w, tensors[one])
}
