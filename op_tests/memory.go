package optests

import (
	"encoding/binary"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// guardBytes is the number of bytes kept free on either side of a tensor. It is a
// multiple of the host's alignment, so that unsliced tensors stay aligned.
const guardBytes = 256

// storageLayout is where a tensor's elements lie in a storage of their own.
type storageLayout struct {
	dtype   tensor.DType
	shape   []int64
	strides []int64
	offset  int64 // elements
	bytes   int64 // of the whole storage
}

// storageLayout lays an argument out as the case says, with a fence on either side.
func (a argument) storageLayout(c Case) storageLayout {
	p := storageLayout{dtype: a.dtype(c), shape: a.shape(c)}
	p.strides = make([]int64, len(p.shape))
	extent, step := int64(1), int64(1)
	if c.Slice && !a.activation && c.Seed%2 == 0 {
		step = 2 // of the streams alone, one dimension must be dense
	}
	lie := a.placement(c)
	for i, dim := range a.order(c, len(p.shape)) {
		if i == 1 {
			step += lie.RowGap
		}
		p.strides[dim] = step
		extent += (max(p.shape[dim], 1) - 1) * step
		step = extent
		if c.Slice {
			step = nextOddStride(extent + a.strideGap())
		}
	}
	p.offset = guardBytes/p.dtype.Size() + lie.Offset
	if c.Slice {
		p.offset++
	}
	p.bytes = (p.offset+extent)*p.dtype.Size() + guardBytes
	return p
}

// placement says where the case wants the argument, if it is an activation.
func (a argument) placement(c Case) Placement {
	switch {
	case !a.activation:
		return Placement{}
	case a.placementOf != nil:
		return a.placementOf(c)
	case a.written():
		return c.Outputs
	}
	return c.Inputs
}

// strideGap differs from argument to argument, so that one's strides do not serve
// for another.
func (a argument) strideGap() int64 { return int64(random(0, a.name).Uint64() % 48) }

// order lists the dimensions from the densest outwards.
func (a argument) order(c Case, rank int) []int {
	last := c.Layout == ChannelLast
	if c.Mixed && a.written() {
		last = !last
	}
	if a.activation && last {
		return [][]int{{}, {0}, {0, 1}, {1, 2, 0}}[rank]
	}
	dims := make([]int, rank)
	for i := range dims {
		dims[i] = rank - 1 - i
	}
	return dims
}

// nextOddStride is a stride above n that is a multiple of no small number.
func nextOddStride(n int64) int64 {
	for n++; n%2 == 0 || n%3 == 0 || n%5 == 0 || n%7 == 0; n++ {
	}
	return n
}

// allocate makes the tensor, its storage filled by pattern.
func (p storageLayout) allocate(pattern func([]byte)) (*tensor.Tensor, error) {
	s, err := tensor.HostStorage(p.bytes)
	if err != nil {
		return nil, err
	}
	raw, err := s.Bytes()
	if err != nil {
		return nil, err
	}
	pattern(raw)
	return tensor.View(s, p.dtype, p.shape, p.strides, p.offset)
}

// canary fills memory that nobody may write. The bytes differ from place to
// place, so that one canary copied over another shows.
func canary(raw []byte) {
	for i := range raw {
		raw[i] = byte(uint32(i)*2654435761>>24) | 1
	}
}

// fillNaN fills the memory around an input with NaNs, which spread to the
// result of whoever reads them.
func fillNaN(raw []byte) {
	for i := range raw {
		raw[i] = [...]byte{0xff, 0x7f}[i%2]
	}
}

// fillNothing fills the memory around an input of integers.
func fillNothing([]byte) {}

// poison sets every element to all ones, a NaN that no machine computes.
func poison(t *tensor.Tensor) error { return setBits(t, ^uint64(0)) }

// setBits sets every element's bits to the lowest of bits.
func setBits(t *tensor.Tensor, bits uint64) error {
	size := uint8(8 * t.DType().Size())
	unsigned := tensor.MakeDType(tensor.CodeUInt, size, 1)
	v, err := tensor.View(t.Storage(), unsigned, t.Shape(), t.Strides(), t.Offset())
	if err != nil {
		return err
	}
	value := float64(bits >> (64 - size))
	return v.SetFloat64s(slices.Repeat([]float64{value}, int(t.Numel())))
}

// countPoison counts the elements that are still as poison left them.
func countPoison(t *tensor.Tensor) (int64, error) {
	c, err := t.Compact()
	if err != nil {
		return 0, err
	}
	raw, err := c.Bytes()
	n, size := int64(0), int(t.DType().Size())
	for at := 0; at+size <= len(raw); at += size {
		if allOnes(raw[at : at+size]) {
			n++
		}
	}
	return n, err
}

func allOnes(element []byte) bool {
	if len(element) == 4 {
		return binary.LittleEndian.Uint32(element) == ^uint32(0)
	}
	return !slices.ContainsFunc(element, func(b byte) bool { return b != 0xff })
}

// firstStrayWrite finds the first byte of t's storage, outside t's elements, that is
// no longer as canary left it; -1 if there is none.
func firstStrayWrite(t *tensor.Tensor) (int64, error) {
	now, err := storageWithoutElements(t, func(raw []byte) { copyStorage(raw, t) })
	if err != nil {
		return 0, err
	}
	then, err := storageWithoutElements(t, canary)
	if err != nil {
		return 0, err
	}
	for i := range now {
		if now[i] != then[i] {
			return int64(i), nil
		}
	}
	return -1, nil
}

// copyStorage copies what t's storage holds. What cannot be read stays zero,
// which no canary is.
func copyStorage(raw []byte, t *tensor.Tensor) {
	if from, err := t.Storage().Bytes(); err == nil {
		copy(raw, from)
	}
}

// storageWithoutElements is a storage like t's, filled by pattern, with t's elements zeroed.
func storageWithoutElements(t *tensor.Tensor, pattern func([]byte)) ([]byte, error) {
	p := storageLayout{t.DType(), t.Shape(), t.Strides(), t.Offset(), t.Storage().Size()}
	c, err := p.allocate(pattern)
	if err != nil {
		return nil, err
	}
	if err := setBits(c, 0); err != nil {
		return nil, err
	}
	return c.Storage().Bytes()
}
