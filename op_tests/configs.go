package optests

import (
	"cmp"
	"slices"
)

// Config is a case that has a name.
type Config struct {
	Name string
	Case Case
}

// Configs lists the named configurations of an operator: small ones that every
// target runs at once, then the sizes that models call it with. Types, layout
// and seed are left open. The error is an *UnknownOpError.
func Configs(op string) ([]Config, error) {
	decl, err := lookup(op)
	if err != nil {
		return nil, err
	}
	models := decl.models
	if models == nil {
		models = sequenceModels
	}
	return append(smallConfigs(), models()...), nil
}

// Usual is the small case of an operator from which sizes come that nobody gave.
// The error is an *UnknownOpError.
func Usual(op string) (Case, error) {
	decl, err := lookup(op)
	if err != nil {
		return Case{}, err
	}
	if decl.models != nil {
		return sized(2, 64, decl.models()[0].Case.Seqlen), nil
	}
	return sized(2, 64, 128), nil
}

// Sweep lists cases of an operator from small to large, for showing how speed
// grows with size: those of [Configs] and some between them, all without SiLU.
// The error is an *UnknownOpError.
func Sweep(op string) ([]Case, error) {
	list, err := Configs(op)
	if err != nil {
		return nil, err
	}
	usual, err := Usual(op)
	if err != nil {
		return nil, err
	}
	cases := []Case{sized(2, 256, 1024), sized(4, 512, 2048), sized(2, 4096, 4096)}
	if usual.Seqlen == 1 {
		cases = []Case{sized(1, 256, 1), sized(1, 1024, 1), sized(4, 5120, 1), sized(4096, 5120, 1)}
	}
	for _, c := range list {
		small := sized(c.Case.Batch, c.Case.Dim, c.Case.Seqlen)
		// One step of many sequences and whole ones do not lie on one curve.
		if !slices.Contains(cases, small) && (usual.Seqlen == 1) == (small.Seqlen == 1) {
			cases = append(cases, small)
		}
	}
	slices.SortStableFunc(cases, func(a, b Case) int { return cmp.Compare(a.Elements(), b.Elements()) })
	return cases, nil
}

// Elements is the number of activations, batch*dim*seqlen.
func (c Case) Elements() int64 { return c.Batch * c.Dim * c.Seqlen }

// smallConfigs are those of the field's own tests.
func smallConfigs() []Config {
	return []Config{
		{"Tiny", sized(1, 32, 64)},
		{"Small", sized(2, 64, 256)},
		{"Medium", sized(4, 64, 512)},
		{"Large", sized(4, 64, 1024)},
		{"No Bias", Case{Batch: 2, Dim: 64, Seqlen: 256, Width: 4, NoBias: true}},
		{"With SiLU", Case{Batch: 2, Dim: 64, Seqlen: 256, Width: 4, SiLU: true}},
	}
}

// sequenceModels are layers of models that see whole sequences, by the number of
// their channels.
func sequenceModels() []Config {
	return []Config{
		{"Mamba 130M", model(16, 1536, 512)},
		{"Mamba 370M", model(8, 2048, 1024)},
		{"Mamba 2.8B", model(8, 5120, 2048)},
		{"Falcon Mamba 7B", model(1, 8192, 16384)},
	}
}

// decodeModels are layers of models that see one position of many sequences.
func decodeModels() []Config {
	return []Config{
		{"Decode 1", model(1, 5120, 1)},
		{"Decode 16", model(16, 5120, 1)},
		{"Decode 64", model(64, 5120, 1)},
		{"Decode 256", model(256, 5120, 1)},
		{"Decode 1024", model(1024, 5120, 1)},
	}
}

func sized(batch, dim, seqlen int64) Case {
	return Case{Batch: batch, Dim: dim, Seqlen: seqlen, Width: 4}
}

// model is a layer's case: with bias and SiLU, as the models have it.
func model(batch, dim, seqlen int64) Case {
	c := sized(batch, dim, seqlen)
	c.SiLU = true
	return c
}
