package optests

import (
	"encoding/binary"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// guardBytes is the number of bytes kept free on either side of a tensor. It is a
// multiple of the host's alignment, so that unsliced tensors stay aligned.
const guardBytes = 256

// storageLayout describes where a tensor's elements lie in the storage that is made for it.
type storageLayout struct {
	dtype   tensor.DType
	shape   []int64
	strides []int64
	offset  int64 // elements
	bytes   int64 // of the whole storage
}

// storageLayout returns the layout of an argument in the case, with guard bytes on either side.
func (a argument) storageLayout(c Case) storageLayout {
	p := storageLayout{dtype: a.dtype(c), shape: a.shape(c)}
	p.strides = make([]int64, len(p.shape))
	extent, step := int64(1), int64(1)
	if c.Slice && !a.unitStride && c.Seed%2 == 0 {
		step = 2
	}
	at := Placement{}
	if a.placement != nil {
		at = a.placement(c)
	}
	for i, dim := range a.dimensions(c, len(p.shape)) {
		if i == 1 {
			step += at.RowGap
		}
		p.strides[dim] = step
		extent += (max(p.shape[dim], 1) - 1) * step
		step = extent
		if c.Slice {
			step = nextOddStride(extent + a.strideGap())
		}
	}
	guard := int64(guardBytes)
	if c.NoGuard {
		guard = 0
	}
	p.offset = guard/p.dtype.Size() + at.Offset
	if c.Slice {
		p.offset++
	}
	p.bytes = (p.offset+extent)*p.dtype.Size() + guard
	if c.NoGuard {
		p.bytes = (p.bytes + tensor.BlockBytes - 1) / tensor.BlockBytes * tensor.BlockBytes
	}
	return p
}

// activationPlacement returns the case's placement of activations: Outputs if the operator writes the argument, else Inputs.
func (a argument) activationPlacement(c Case) Placement {
	if a.written() {
		return c.Outputs
	}
	return c.Inputs
}

// strideGap differs from argument to argument, so that a kernel that takes the
// strides of the wrong argument fails.
func (a argument) strideGap() int64 { return int64(random(0, a.name).Uint64() % 48) }

// dimensions lists the dimensions from the one with the smallest stride to the one
// with the largest.
func (a argument) dimensions(c Case, rank int) []int {
	if a.order != nil {
		return a.order(c, rank)
	}
	return rowMajor(rank)
}

func rowMajor(rank int) []int {
	dims := make([]int, rank)
	for i := range dims {
		dims[i] = rank - 1 - i
	}
	return dims
}

// nextOddStride returns the next stride above n that 2, 3, 5 and 7 do not divide.
func nextOddStride(n int64) int64 {
	for n++; n%2 == 0 || n%3 == 0 || n%5 == 0 || n%7 == 0; n++ {
	}
	return n
}

// allocate makes the tensor; pattern fills its storage.
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

// canary fills memory that an operator must not write. A byte depends on its
// position, so that a canary byte copied over another one is found.
func canary(raw []byte) {
	for i := range raw {
		raw[i] = byte(uint32(i)*2654435761>>24) | 1
	}
}

// fillNaN fills the memory around an input with NaNs: a kernel that reads them
// computes NaN.
func fillNaN(raw []byte) {
	for i := range raw {
		raw[i] = [...]byte{0xff, 0x7f}[i%2]
	}
}

// fillNothing leaves the memory around an integer input zero.
func fillNothing([]byte) {}

// poison sets all bits of every element: a NaN that no arithmetic yields.
func poison(t *tensor.Tensor) error { return setBits(t, ^uint64(0)) }

// setBits sets every element to the low-order bits of bits.
func setBits(t *tensor.Tensor, bits uint64) error {
	size := uint8(8 * t.DType().Size())
	signed := tensor.MakeDType(tensor.CodeInt, size, 1)
	v, err := tensor.View(t.Storage(), signed, t.Shape(), t.Strides(), t.Offset())
	if err != nil {
		return err
	}
	value := float64(int64(bits<<(64-size)) >> (64 - size))
	return v.SetFloat64s(slices.Repeat([]float64{value}, int(t.Numel())))
}

// countPoison counts the elements that still hold the poison.
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

// firstStrayWrite finds the first byte of t's storage outside t's elements that
// differs from the canary; -1 if there is none.
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

// copyStorage copies the bytes of t's storage. If the storage cannot be read, raw
// stays zero, which differs from every canary.
func copyStorage(raw []byte, t *tensor.Tensor) {
	if from, err := t.Storage().Bytes(); err == nil {
		copy(raw, from)
	}
}

// storageWithoutElements returns a storage of t's layout, filled by pattern, in which
// t's elements are zero.
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
