package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/causalconv1d"
	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// memory holds the tensors of one request. Device memory is not garbage collected:
// free releases it.
type memory struct {
	devices *device.Devices
	dev     tensor.Device
	held    []*tensor.Tensor
}

func (m *memory) free() error {
	var errs []error
	for _, t := range m.held {
		errs = append(errs, m.devices.Free(t))
	}
	return errors.Join(errs...)
}

// place makes the arguments of a request.
func (m *memory) place(ctx context.Context, req request) (a causalconv1d.Forward, err error) {
	a.SiLU = req.SiLU
	if a.X, err = upload(ctx, m, "x", rank3(req.X)); err != nil {
		return a, err
	}
	if a.Weight, err = upload(ctx, m, "weight", rank2(req.Weight)); err != nil {
		return a, err
	}
	if req.Bias != nil {
		if a.Bias, err = upload(ctx, m, "bias", array{req.Bias, []int64{int64(len(req.Bias))}, true}); err != nil {
			return a, err
		}
	}
	a.Out, err = m.hold(m.devices.New(m.dev, tensor.Float32, a.X.Shape()...))
	return a, err
}

func (m *memory) hold(t *tensor.Tensor, err error) (*tensor.Tensor, error) {
	if err == nil {
		m.held = append(m.held, t)
	}
	return t, err
}

func upload(ctx context.Context, m *memory, name string, a array) (*tensor.Tensor, error) {
	if !a.even {
		return nil, &raggedError{name}
	}
	t, err := tensor.Of(a.values, a.shape...)
	if err != nil {
		return nil, err
	}
	return m.hold(m.devices.Upload(ctx, t, m.dev))
}

// fetch reads a (batch, dim, seqlen) tensor.
func (m *memory) fetch(ctx context.Context, t *tensor.Tensor) ([][][]float32, error) {
	host, err := m.hold(m.devices.Download(ctx, t))
	if err != nil {
		return nil, err
	}
	values, err := host.Float64s()
	if err != nil {
		return nil, err
	}
	out := make([][][]float32, t.Dim(0))
	for b := range out {
		out[b] = make([][]float32, t.Dim(1))
		for d := range out[b] {
			row := make([]float32, t.Dim(2))
			for i := range row {
				row[i] = float32(values[i])
			}
			out[b][d], values = row, values[len(row):]
		}
	}
	return out, nil
}

// raggedError reports nested lists whose lengths differ.
type raggedError struct{ name string }

func (e *raggedError) Error() string {
	return fmt.Sprintf("%s: expected lists of equal length", e.name)
}

// array is a nested list in row-major order.
type array struct {
	values []float32
	shape  []int64
	even   bool // the lists are of equal length
}

func rank2(rows [][]float32) array {
	a := array{shape: []int64{int64(len(rows)), 0}, even: true}
	for i, row := range rows {
		if i == 0 {
			a.shape[1] = int64(len(row))
		}
		a.even = a.even && int64(len(row)) == a.shape[1]
		a.values = append(a.values, row...)
	}
	return a
}

func rank3(parts [][][]float32) array {
	a := array{shape: []int64{int64(len(parts)), 0, 0}, even: true}
	for i, part := range parts {
		p := rank2(part)
		if i == 0 {
			a.shape[1], a.shape[2] = p.shape[0], p.shape[1]
		}
		a.even = a.even && p.even && p.shape[0] == a.shape[1] && p.shape[1] == a.shape[2]
		a.values = append(a.values, p.values...)
	}
	return a
}
