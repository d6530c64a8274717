package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/tensor"
)

// request is a convolution of sequences of equal length. Its tensors are row-major, in host memory.
type request struct {
	x       *tensor.Tensor // (batch, seqlen, dim)
	filters *filters
	initial *tensor.Tensor // (batch, dim, width-1); nil: zeros
	silu    bool

	batched bool       // x has a batch dimension in the request
	format  api.Format // of the answer
	answer  []byte     // written by the call
}

// filters has a weight and a bias. Requests with equal filters may share a call.
type filters struct {
	weight, bias *tensor.Tensor // bias may be nil
	digest       [sha256.Size]byte
}

// requestError reports an invalid request.
type requestError struct{ reason string }

func (e *requestError) Error() string { return "request: " + e.reason }

func wrong(name, expected string, got *tensor.Tensor) error {
	if got == nil {
		return &requestError{fmt.Sprintf("%s: expected %s, got none", name, expected)}
	}
	return &requestError{fmt.Sprintf("%s: expected %s, got %s%v", name, expected, got.DType(), got.Shape())}
}

const floats = "float32, float16 or bfloat16"

func isFloat(dt tensor.DType) bool {
	return dt == tensor.Float32 || dt == tensor.Float16 || dt == tensor.BFloat16
}

// decode reads and checks a request. own are the filters of the service; nil: each request has its own.
func decode(body []byte, format api.Format, own *filters) (*request, error) {
	tensors, err := format.Decode(body, api.X)
	if err != nil {
		return nil, &requestError{err.Error()}
	}
	names := []string{api.X, api.Weight, api.Bias, api.Initial}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if !slices.Contains(names, name) {
			return nil, &requestError{fmt.Sprintf("tensor %.40q: expected the names %s", name, strings.Join(names, ", "))}
		}
		if tensors[name].Contiguous() {
			continue
		}
		if tensors[name], err = tensors[name].Compact(); err != nil { // a .npy file may be in Fortran order
			return nil, err
		}
	}
	r := &request{filters: own, format: format}
	if err := r.setX(tensors[api.X]); err != nil {
		return nil, err
	}
	if own == nil {
		r.filters, err = newFilters(tensors[api.Weight], tensors[api.Bias])
	} else if tensors[api.Weight] != nil || tensors[api.Bias] != nil { // the code for their width may not be built
		err = &requestError{"weight, bias: expected none, because the service has its own; leave them out"}
	}
	if err != nil {
		return nil, err
	}
	if err := r.checkFilters(); err != nil {
		return nil, err
	}
	return r, r.setInitial(tensors[api.Initial])
}

// setX checks x and sets it. If x has no batch dimension, setX adds one of size 1.
func (r *request) setX(x *tensor.Tensor) (err error) {
	if x == nil || x.Rank() != 2 && x.Rank() != 3 || !isFloat(x.DType()) {
		return wrong(api.X, "(seqlen, dim) or (batch, seqlen, dim) of "+floats, x)
	}
	if x.Numel() == 0 {
		return wrong(api.X, "at least 1 position, 1 channel and 1 sequence", x)
	}
	if r.batched = x.Rank() == 3; !r.batched {
		x, err = x.Reshape(1, x.Dim(0), x.Dim(1))
	}
	r.x = x
	return err
}

// newFilters checks a weight and a bias as far as this does not depend on x, and computes their digest.
func newFilters(weight, bias *tensor.Tensor) (*filters, error) {
	if weight == nil || weight.Rank() != 2 || weight.Numel() == 0 || !isFloat(weight.DType()) {
		return nil, wrong(api.Weight, "(groups, width) of "+floats, weight)
	}
	if bias != nil && (bias.Rank() != 1 || !isFloat(bias.DType())) {
		return nil, wrong(api.Bias, "(dim) of "+floats, bias)
	}
	f, sum := &filters{weight: weight, bias: bias}, sha256.New()
	for _, t := range []*tensor.Tensor{weight, bias} {
		if t == nil {
			continue
		}
		data, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		for _, n := range append(t.Shape(), int64(t.DType())) {
			sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
		}
		sum.Write(data)
	}
	sum.Sum(f.digest[:0])
	return f, nil
}

func (r *request) checkFilters() error {
	if groups := r.filters.weight.Dim(0); r.dim()%groups != 0 {
		return wrong(api.Weight, fmt.Sprintf("a number of filters that divides the %d channels of x", r.dim()), r.filters.weight)
	}
	if b := r.filters.bias; b != nil && b.Dim(0) != r.dim() {
		return wrong(api.Bias, fmt.Sprintf("%d values, one for each channel of x", r.dim()), b)
	}
	return nil
}

func (r *request) setInitial(t *tensor.Tensor) (err error) {
	if t == nil {
		return nil
	}
	want := r.stateShape()
	if !slices.Equal(t.Shape(), want) || t.DType() != r.x.DType() {
		return wrong(api.Initial, fmt.Sprintf("%s%v", r.x.DType(), want), t)
	}
	r.initial, err = t.Reshape(r.batch(), r.dim(), r.width()-1)
	return err
}

func (r *request) batch() int64  { return r.x.Dim(0) }
func (r *request) seqlen() int64 { return r.x.Dim(1) }
func (r *request) dim() int64    { return r.x.Dim(2) }
func (r *request) width() int64  { return r.filters.weight.Dim(1) }
func (r *request) tokens() int64 { return r.batch() * r.seqlen() }
func (r *request) bytes() int64  { return r.x.Numel() * r.x.DType().Size() }

// stateShape returns the shape of the states, which is the same in the request and in the answer.
func (r *request) stateShape() []int64 {
	if !r.batched {
		return []int64{r.dim(), r.width() - 1}
	}
	return []int64{r.batch(), r.dim(), r.width() - 1}
}

// outShape returns the shape of out in the answer, which is that of x in the request.
func (r *request) outShape() []int64 { return r.x.Shape()[3-len(r.stateShape()):] }

// callBytes returns an upper bound of the host memory, in bytes, of a call with this request alone: its tensors, the memory of the call
// (rounded up to a power of two) and the answer.
func (r *request) callBytes() int64 {
	size := r.x.DType().Size()
	return 6*r.x.Numel()*size + 4*r.batch()*r.dim()*(r.width()-1)*size + 16*r.batch() + 2*minBlock
}

// batchKey identifies requests that may share a call: those with equal keys.
type batchKey struct {
	dtype  tensor.DType
	dim    int64
	silu   bool
	digest [sha256.Size]byte
}

func (r *request) key() batchKey {
	return batchKey{r.x.DType(), r.dim(), r.silu, r.filters.digest}
}
