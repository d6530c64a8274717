package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/tensor"
)

// sample is a request. Its first answer is compared with the formula. Later answers must have the same bytes as the first, because an
// answer does not depend on the requests that share its call.
type sample struct {
	tensors map[string]*tensor.Tensor // also the filters that the body lacks
	body    []byte

	mu     sync.Mutex
	answer []byte // the first one
}

// newSamples makes requests with equal filters.
func newSamples(s shape, own bool) ([]*sample, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(sizes ...int64) (*tensor.Tensor, error) {
		n := int64(1)
		for _, size := range sizes {
			n *= size
		}
		values := make([]float64, n)
		for i := range values {
			values[i] = rng.Float64()*2 - 1
		}
		return tensor.FromFloat64s(s.dtype, values, sizes...)
	}
	weight, err1 := random(s.dim, s.width)
	bias, err2 := random(s.dim)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	var list []*sample
	for range 16 {
		x, err1 := random(s.seqlen, s.dim)
		initial, err2 := random(s.dim, s.width-1)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		all := map[string]*tensor.Tensor{api.X: x, api.Weight: weight, api.Bias: bias, api.Initial: initial}
		sent := map[string]*tensor.Tensor{api.X: x, api.Initial: initial}
		if !own {
			sent = all
		}
		var body bytes.Buffer
		if err := api.Safetensors.Encode(&body, sent, api.X); err != nil {
			return nil, err
		}
		list = append(list, &sample{tensors: all, body: body.Bytes()})
	}
	return list, nil
}

// check returns an error if an answer is wrong.
func (s *sample) check(answer []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer != nil {
		if !bytes.Equal(answer, s.answer) {
			return errors.New("two answers to one request differ")
		}
		return nil
	}
	tensors, err := api.Safetensors.Decode(answer, api.Out)
	if err != nil {
		return err
	}
	s.answer = answer
	return api.Check(s.tensors, tensors, true)
}

// save writes files with a request, and a file with its filters for the service's -weights.
func (s *sample) save(folder string) error {
	for _, file := range []struct {
		name    string
		format  api.Format
		tensors []string
	}{
		{"x.npy", api.NPY, []string{api.X}},
		{"request.safetensors", api.Safetensors, []string{api.X, api.Weight, api.Bias, api.Initial}},
		{"weights.safetensors", api.Safetensors, []string{api.Weight, api.Bias}},
	} {
		tensors := map[string]*tensor.Tensor{}
		for _, name := range file.tensors {
			tensors[name] = s.tensors[name]
		}
		var b bytes.Buffer
		if err := file.format.Encode(&b, tensors, api.X); err != nil {
			return err
		}
		path := filepath.Join(folder, file.name)
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
