package registry

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// A shape class is a set of calls that share their launch parameters. The code of a class has bytes for each argument of a call:
//   - an absent argument: noArgument
//   - a bool: boolArgument and the value
//   - an int: intArgument and a size code
//   - a tensor: tensorArgument, three bytes of the element type, the rank, the size code of each dimension, and the layout. The
//     layout is the last dimension whose elements are adjacent, or the rank if there is none, with alignedLayout.
//   - another argument, such as a float or a text: otherArgument, whatever its value
const (
	noArgument     = 0
	boolArgument   = 1
	intArgument    = 2
	tensorArgument = 3
	otherArgument  = 4

	alignedLayout = 0x80 // the first element is at a multiple of 16 bytes
	exactSizes    = 16   // each size up to this one has a code; larger sizes share one for each power of two
)

// appendClass appends the code of the class of packed arguments.
func appendClass(code []byte, packed []ffi.Any, args []any) []byte {
	for i := range packed {
		switch packed[i].Type {
		case ffi.TypeNone:
			code = append(code, noArgument)
		case ffi.TypeBool:
			code = append(code, boolArgument, byte(packed[i].Bits))
		case ffi.TypeInt:
			code = append(code, intArgument, sizeCode(int64(packed[i].Bits)))
		case ffi.TypeDLTensor:
			code = appendTensorClass(code, args[i].(*tensor.Tensor))
		default:
			code = append(code, otherArgument)
		}
	}
	return code
}

func appendTensorClass(code []byte, t *tensor.Tensor) []byte {
	dt := uint32(t.DType())
	code = append(code, tensorArgument, byte(dt), byte(dt>>8), byte(dt>>16), byte(t.Rank()))
	layout := t.Rank()
	for d := range t.Rank() {
		if code = append(code, sizeCode(t.Dim(d))); t.Stride(d) == 1 {
			layout = d
		}
	}
	if t.Ptr()%16 == 0 {
		layout |= alignedLayout
	}
	return append(code, byte(layout))
}

// sizeCode returns the code of a size: 0 for a negative one, n+1 up to exactSizes. Larger sizes have one code for each range that ends
// with a power of two, such as 17 to 32.
func sizeCode(n int64) byte {
	switch {
	case n < 0:
		return 0
	case n <= exactSizes:
		return byte(n + 1)
	}
	return byte(exactSizes + 1 + bits.Len64(uint64(n-1)) - bits.Len64(exactSizes-1))
}

// sizeWords returns the size or the range of sizes of a code: "4", "2049-4096".
func sizeWords(code byte) string {
	switch {
	case code == 0:
		return "negative"
	case code <= exactSizes+1:
		return fmt.Sprint(code - 1)
	}
	most := uint64(exactSizes) << (code - exactSizes - 1)
	return fmt.Sprintf("%d-%d", most/2+1, most)
}

// classWords describes the class of arguments: "out bfloat16 (2, 2049-4096, 4), x bfloat16 (2, 2049-4096, 4), use_silu". It leaves out
// absent arguments and false ones, and names a layout that is not row-major and aligned.
func classWords(s schema.Schema, packed []ffi.Any, args []any) string {
	var words []string
	for i, a := range packed {
		name := s.Args[i].Name
		switch a.Type {
		case ffi.TypeBool:
			if a.Bits != 0 {
				words = append(words, name)
			}
		case ffi.TypeInt:
			words = append(words, name+" "+sizeWords(sizeCode(int64(a.Bits))))
		case ffi.TypeDLTensor:
			words = append(words, name+" "+tensorWords(args[i].(*tensor.Tensor)))
		}
	}
	return strings.Join(words, ", ")
}

func tensorWords(t *tensor.Tensor) string {
	var sizes []string
	adjacent := t.Rank()
	for d := range t.Rank() {
		if sizes = append(sizes, sizeWords(sizeCode(t.Dim(d)))); t.Stride(d) == 1 {
			adjacent = d
		}
	}
	text := fmt.Sprintf("%s (%s)", t.DType(), strings.Join(sizes, ", "))
	switch {
	case t.Rank() > 0 && adjacent == t.Rank():
		text += " strided"
	case adjacent < t.Rank()-1:
		text += fmt.Sprintf(" adjacent in dimension %d", adjacent)
	}
	if t.Ptr()%16 != 0 {
		text += " unaligned"
	}
	return text
}
