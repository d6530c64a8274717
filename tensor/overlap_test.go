package tensor_test

import (
	"math/rand/v2"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

func TestOverlaps(t *testing.T) {
	x := iota64(t, 4, 6, 8)
	part := func(dim int, from, to int64) *tensor.Tensor { return must(x.Slice(dim, from, to)) }
	for name, c := range map[string]struct {
		a, b *tensor.Tensor
		want bool
	}{
		"itself":         {x, x, true},
		"transposed":     {x, must(x.Transpose(0, 2)), true},
		"rows apart":     {part(0, 0, 2), part(0, 2, 4), false},
		"rows shared":    {part(0, 0, 3), part(0, 2, 4), true},
		"columns apart":  {part(2, 0, 4), part(2, 4, 8), false},
		"columns shared": {part(2, 0, 5), part(2, 4, 8), true},
		"middle apart":   {part(1, 0, 3), must(part(1, 3, 6).Transpose(1, 2)), false},
		"crossing":       {part(1, 2, 3), part(2, 5, 6), true},
		"empty":          {part(1, 3, 3), x, false},
		"other storage":  {x, iota64(t, 4, 6, 8), false},
		"every other": {must(tensor.View(x.Storage(), tensor.Float32, []int64{96}, []int64{2}, 0)),
			must(tensor.View(x.Storage(), tensor.Float32, []int64{96}, []int64{2}, 1)), false},
		"reversed": {must(tensor.View(x.Storage(), tensor.Float32, []int64{96}, []int64{-2}, 190)),
			must(tensor.View(x.Storage(), tensor.Float32, []int64{96}, []int64{2}, 1)), false},
		"another type": {must(tensor.View(x.Storage(), tensor.Float16, []int64{96}, []int64{4}, 2)),
			must(tensor.View(x.Storage(), tensor.Float32, []int64{96}, []int64{2}, 1)), true},
		"halves of a word": {must(tensor.View(x.Storage(), tensor.Float16, []int64{96}, []int64{4}, 2)),
			must(tensor.View(x.Storage(), tensor.Float16, []int64{96}, []int64{4}, 3)), false},
	} {
		if got := tensor.Overlaps(c.a, c.b); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := tensor.Overlaps(c.b, c.a); got != c.want {
			t.Errorf("%s, exchanged: %v, want %v", name, got, c.want)
		}
	}
}

func TestOverlapsDevices(t *testing.T) {
	at := func(ptr uintptr, dev tensor.Device) *tensor.Tensor {
		return must(tensor.View(tensor.ForeignStorage(ptr, 64, dev, nil), tensor.UInt8, []int64{64}, nil, 0))
	}
	gpu0, gpu1 := tensor.Device{Type: tensor.CUDA}, tensor.Device{Type: tensor.CUDA, ID: 1}
	if tensor.Overlaps(at(0x1000, gpu0), at(0x1000, gpu1)) {
		t.Error("equal addresses on two devices")
	}
	if !tensor.Overlaps(at(0x1000, gpu0), at(0x103f, gpu0)) || tensor.Overlaps(at(0x1000, gpu0), at(0x1040, gpu0)) {
		t.Error("two storages over the same memory are compared by address")
	}
}

// touched marks the bytes of the storage that x covers.
func touched(x *tensor.Tensor) (out [96]bool) {
	var visit func(dim int, at int64)
	visit = func(dim int, at int64) {
		if dim < x.Rank() {
			for i := range x.Dim(dim) {
				visit(dim+1, at+i*x.Stride(dim))
			}
			return
		}
		for b := range x.DType().Size() {
			out[at*x.DType().Size()+b] = true
		}
	}
	visit(0, x.Offset())
	return out
}

func shareByte(a, b [96]bool) bool {
	for i := range a {
		if a[i] && b[i] {
			return true
		}
	}
	return false
}

// randomViews returns a function that makes small views of a storage, of random types, shapes and strides.
func randomViews(s *tensor.Storage) func() *tensor.Tensor {
	rng := rand.New(rand.NewPCG(3, 4))
	return func() *tensor.Tensor {
		for {
			shape, strides := make([]int64, rng.IntN(4)), []int64{}
			for i := range shape {
				shape[i] = rng.Int64N(4)
				strides = append(strides, rng.Int64N(21)-10)
			}
			dt := []tensor.DType{tensor.UInt8, tensor.Int16, tensor.Float32}[rng.IntN(3)]
			if x, err := tensor.View(s, dt, shape, strides, rng.Int64N(96)); err == nil {
				return x
			}
		}
	}
}

// On small random views the result equals that of comparing every byte.
func TestOverlapsExact(t *testing.T) {
	random := randomViews(must(tensor.HostStorage(96)))
	seen := map[bool]int{}
	for range 4000 {
		a, b := random(), random()
		want := shareByte(touched(a), touched(b))
		if got := tensor.Overlaps(a, b); got != want {
			t.Fatalf("%v %v at %d and %v %v at %d: %v", a, a.Strides(), a.ByteOffset(), b, b.Strides(), b.ByteOffset(), got)
		}
		seen[want]++
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("too few cases of one kind: %v", seen)
	}
}

// On small random views OverlapsItself reports whether fewer bytes than those of all elements are covered.
func TestOverlapsItselfExact(t *testing.T) {
	random := randomViews(must(tensor.HostStorage(96)))
	seen := map[bool]int{}
	for range 4000 {
		x := random()
		covered := int64(0)
		for _, is := range touched(x) {
			if is {
				covered++
			}
		}
		want := covered < x.Numel()*x.DType().Size()
		if got := tensor.OverlapsItself(x); got != want {
			t.Fatalf("%v %v: %v", x, x.Strides(), got)
		}
		seen[want]++
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("too few cases of one kind: %v", seen)
	}
}

func BenchmarkOverlaps(b *testing.B) {
	x := iota64(b, 8, 64, 128)
	left, right := must(x.Slice(2, 0, 64)), must(x.Slice(2, 64, 128))
	for b.Loop() {
		if tensor.Overlaps(left, right) {
			b.Fatal("halves overlap")
		}
	}
}
