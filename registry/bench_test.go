//go:build linux

package registry_test

import (
	"context"
	"testing"

	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

func BenchmarkLookup(b *testing.B) {
	r := open(b, registry.Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Lookup("causal_conv1d_fwd"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCallEmpty(b *testing.B) {
	r := open(b, registry.Options{})
	op := lookup(b, r, "causal_conv1d_fwd")
	x, out := must(tensor.New(tensor.Float32, 0, 1, 4)), must(tensor.New(tensor.Float32, 0, 1, 4))
	w := must(tensor.New(tensor.Float32, 1, 3))
	ctx := context.Background()
	if err := op.Call(ctx, out, x, w); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := op.Call(ctx, out, x, w, nil, false, nil, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenAndFirstCallWarmCache(b *testing.B) {
	ctx := context.Background()
	out, x, w := small()
	for b.Loop() {
		r := open(b, registry.Options{})
		if err := lookup(b, r, "causal_conv1d_fwd").Call(ctx, out, x, w); err != nil {
			b.Fatal(err)
		}
	}
}
