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
	models := decl.modelConfigs
	if models == nil {
		models = sequenceModelConfigs
	}
	return append(smallConfigs(), models()...), nil
}

// DefaultCase is the small case of an operator from which sizes come that nobody gave.
// The error is an *UnknownOpError.
func DefaultCase(op string) (Case, error) {
	decl, err := lookup(op)
	if err != nil {
		return Case{}, err
	}
	if decl.modelConfigs != nil {
		return sizedCase(2, 64, decl.modelConfigs()[0].Case.Seqlen), nil
	}
	return sizedCase(2, 64, 128), nil
}

// Sweep lists cases of an operator from small to large, for showing how speed
// grows with size: those of [Configs] and some between them, all without SiLU.
// The error is an *UnknownOpError.
func Sweep(op string) ([]Case, error) {
	list, err := Configs(op)
	if err != nil {
		return nil, err
	}
	usual, err := DefaultCase(op)
	if err != nil {
		return nil, err
	}
	cases := []Case{sizedCase(2, 256, 1024), sizedCase(4, 512, 2048), sizedCase(2, 4096, 4096)}
	if usual.Seqlen == 1 {
		cases = []Case{sizedCase(1, 256, 1), sizedCase(1, 1024, 1), sizedCase(4, 5120, 1), sizedCase(4096, 5120, 1)}
	}
	for _, c := range list {
		small := sizedCase(c.Case.Batch, c.Case.Dim, c.Case.Seqlen)
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
		{"Tiny", sizedCase(1, 32, 64)},
		{"Small", sizedCase(2, 64, 256)},
		{"Medium", sizedCase(4, 64, 512)},
		{"Large", sizedCase(4, 64, 1024)},
		{"No Bias", Case{Batch: 2, Dim: 64, Seqlen: 256, Width: 4, NoBias: true}},
		{"With SiLU", Case{Batch: 2, Dim: 64, Seqlen: 256, Width: 4, SiLU: true}},
	}
}

// sequenceModelConfigs are layers of models that see whole sequences, by the number of
// their channels.
func sequenceModelConfigs() []Config {
	return []Config{
		{"Mamba 130M", modelCase(16, 1536, 512)},
		{"Mamba 370M", modelCase(8, 2048, 1024)},
		{"Mamba 2.8B", modelCase(8, 5120, 2048)},
		{"Falcon Mamba 7B", modelCase(1, 8192, 16384)},
	}
}

// decodeModelConfigs are layers of models that see one position of many sequences.
func decodeModelConfigs() []Config {
	return []Config{
		{"Decode 1", modelCase(1, 5120, 1)},
		{"Decode 16", modelCase(16, 5120, 1)},
		{"Decode 64", modelCase(64, 5120, 1)},
		{"Decode 256", modelCase(256, 5120, 1)},
		{"Decode 1024", modelCase(1024, 5120, 1)},
	}
}

func sizedCase(batch, dim, seqlen int64) Case {
	return Case{Batch: batch, Dim: dim, Seqlen: seqlen, Width: 4}
}

// modelCase is a layer's case: with bias and SiLU, as the models have it.
func modelCase(batch, dim, seqlen int64) Case {
	c := sizedCase(batch, dim, seqlen)
	c.SiLU = true
	return c
}
