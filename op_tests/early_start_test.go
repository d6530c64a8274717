//go:build linux

package optests_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// indexWriter is a call that writes int32 numbers: the state of causal_conv1d_update with 2 taps is x, bit for bit.
type indexWriter struct {
	args    []any               // but x
	x       [2]*tensor.Tensor   // the calls alternate
	written []*tensor.Tensor    // views of the state
	numbers [2][]*tensor.Tensor // what a call writes to them
}

// newIndexWriter returns a writer of lists of numbers. They are in the last row, which a kernel writes at its end.
func (g target) newIndexWriter(t *testing.T, rows, dim int64, numbers [2][][]int64) *indexWriter {
	t.Helper()
	state := g.moved(t, newTensor(t, tensor.BFloat16, rows, dim, 1))
	out, weight := newTensor(t, tensor.BFloat16, rows, dim), newTensor(t, tensor.BFloat16, dim, 2)
	w := &indexWriter{args: []any{g.moved(t, out), nil, state, g.moved(t, weight)}}
	for k, lists := range numbers {
		x := newTensor(t, tensor.BFloat16, rows, dim)
		bits, err := tensor.Data[tensor.BF16](x)
		if err != nil {
			t.Fatal(err)
		}
		last := bits[(rows-1)*dim:]
		at := 0
		for _, list := range lists {
			w.numbers[k] = append(w.numbers[k], g.moved(t, ints(t, list)))
			for _, v := range list {
				last[2*at] = tensor.BF16(v)
				at++
			}
		}
		w.x[k] = g.moved(t, x)
	}
	offset := (rows - 1) * dim / 2
	for _, list := range numbers[0] {
		n := int64(len(list))
		view, err := tensor.View(state.Storage(), tensor.Int32, []int64{n}, []int64{1}, offset)
		if err != nil {
			t.Fatal(err)
		}
		w.written = append(w.written, view)
		offset += n
	}
	return w
}

// moved copies a tensor to the device.
func (g target) moved(t *testing.T, v *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	if g.runner.Device == nil {
		return v
	}
	v, err := g.runner.Device.ToDevice(v)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// content returns the bytes of a tensor.
func (g target) content(t *testing.T, v *tensor.Tensor) []byte {
	t.Helper()
	if g.runner.Device != nil {
		var err error
		if v, err = g.runner.Device.ToHost(v); err != nil {
			t.Fatal(err)
		}
	}
	v, err := v.Compact()
	if err != nil {
		t.Fatal(err)
	}
	b, err := v.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestIndicesOfPreviousCall has updates whose slot indices and numbers of accepted tokens are written by the previous call on the stream.
// On CUDA their kernels start before that call ends, and use what they then read as a guess.
func TestIndicesOfPreviousCall(t *testing.T) {
	target := open(t)
	dev, err := tensor.ParseDevice(*deviceFlag)
	if err != nil {
		t.Fatal(err)
	}
	queue, wait, rows := target.runner.Call, func() error { return nil }, int64(4)
	cuda := dev.Type == tensor.CUDA && !*hostFlag
	if cuda {
		driver, err := target.reg.Devices().Driver(dev.Type)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := driver.NewStream(int(dev.ID))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stream.Close() })
		ctx := device.WithStream(t.Context(), stream)
		queue = func(op string, args []any) error { return call(ctx, target.reg, op, args) }
		wait = func() error { return driver.Synchronize(stream) }
		rows = 1024 // the writer's kernel runs for a while
	}
	tests := []struct {
		name                      string
		batch, dim, width, tokens int64
		accepted                  bool
	}{
		{"causal_conv1d_update", 24, 2048, 4, 1, false},
		{"causal_conv1d_update", 24, 2048, 2, 2, false},
		{"causal_conv1d_update", 136, 8192, 4, 1, false},
		{"causal_conv1d_serve_update", 24, 2048, 4, 1, false},
		{"causal_conv1d_serve_update", 24, 2048, 3, 2, true},
	}
	for _, test := range tests {
		if !cuda { // no kernel starts early
			test.batch, test.dim = 3, 64
		}
		var numbers [2][][]int64
		for k := range numbers {
			slots, accepted := make([]int64, test.batch), make([]int64, test.batch)
			for i := range slots {
				slots[i], accepted[i] = int64(i+1), int64(k+1)
			}
			if k == 1 {
				slices.Reverse(slots)
			}
			numbers[k] = [][]int64{slots, accepted}
		}
		writer := target.newIndexWriter(t, rows, 2048, numbers)
		adjacent := func(batch, tokens int64) *tensor.Tensor {
			v := newTensor(t, tensor.BFloat16, batch, tokens, test.dim)
			values := make([]float64, v.Numel())
			for i := range values {
				values[i] = float64(i*7919%251)/64 - 2
			}
			fill(t, v, values)
			v, err := target.moved(t, v).Transpose(1, 2)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		weight := newTensor(t, tensor.BFloat16, test.dim, test.width)
		fill(t, weight, slices.Repeat([]float64{0.25}, int(weight.Numel())))
		weight = target.moved(t, weight)
		entries := test.width - 1
		if test.accepted {
			entries += test.tokens - 1
		}
		x := adjacent(test.batch, test.tokens)
		var out, state [2]*tensor.Tensor // of the calls with the written numbers, and with others that are equal
		for k := range out {
			out[k], state[k] = adjacent(test.batch, test.tokens), adjacent(test.batch+1, entries)
		}
		update := func(k int, numbers []*tensor.Tensor) {
			args := []any{out[k], x, state[k], weight, nil, true, nil, numbers[0], int64(-1)}
			if test.name == "causal_conv1d_serve_update" {
				args = []any{out[k], x, state[k], weight, nil, true, numbers[0], nil, int64(-1), nil}
				if test.accepted {
					args[9] = numbers[1]
				}
			}
			if err := errors.Join(queue(test.name, args), wait()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			update(1, writer.numbers[i%2])
			writer.args[1] = writer.x[i%2]
			if err := queue("causal_conv1d_update", writer.args); err != nil {
				t.Fatal(err)
			}
			update(0, writer.written)
			if !bytes.Equal(target.content(t, out[0]), target.content(t, out[1])) {
				t.Fatalf("%+v: out of call %d differs from that with other tensors of the same numbers", test, i)
			}
		}
		if !bytes.Equal(target.content(t, state[0]), target.content(t, state[1])) {
			t.Fatalf("%+v: the states differ from those with other tensors of the same numbers", test)
		}
	}
}
