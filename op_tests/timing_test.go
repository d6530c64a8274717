package optests

import (
	"slices"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

func TestTraffic(t *testing.T) {
	const b, d, l, w = 2, 64, 256, 4
	plain := Case{Params: Conv1d{Batch: b, Dim: d, Seqlen: l, Width: w}}
	half := plain
	half.DType, half.WeightDType = tensor.Float16, tensor.Float32
	states := plain
	states = With(states, func(p *Conv1d) { p.NoBias, p.WithStates = true, true })
	slots := Case{Params: Conv1d{Batch: b, Dim: d, Seqlen: 1, Width: w, NoBias: true, State: State{Slots: 100}}}
	for _, c := range []struct {
		op   string
		c    Case
		want int64
	}{
		{"causal_conv1d_fwd", plain, 4 * (2*b*d*l + d*w + d)},
		{"causal_conv1d_fwd", half, 2*2*b*d*l + 4*(d*w+d)},
		{"causal_conv1d_fwd", states, 4 * (2*b*d*l + d*w + 2*b*d*(w-1))},
		{"causal_conv1d_bwd", plain, 4 * (3*b*d*l + 2*(d*w+d))},
		{"causal_conv1d_update", slots, 4 * (b*d*(2+2*(w-1)) + d*w)},
		{"causal_conv1d_varlen_states", plain, 4 * (2*b*d*(w-1) + b + 1)},
		{"causal_conv1d_varlen_states", Case{Params: Conv1d{Batch: b, Dim: d, Seqlen: 1, Width: w}}, 4 * (b*d*(w-1) + b*d + b + 1)},
	} {
		got, err := declared(t, c.op).Traffic(c.c)
		if err != nil || got != c.want {
			t.Errorf("Traffic(%s, %s) = %d, %v, want %d", c.op, c.c, got, err, c.want)
		}
	}
	if _, err := declared(t, "causal_conv1d_fwd").Traffic(Case{}); err == nil {
		t.Error("Traffic: no error for a width of 0")
	}
}

func TestMultiplyAdds(t *testing.T) {
	const b, d, l, w = 2, 64, 256, 4
	plain := Case{Params: Conv1d{Batch: b, Dim: d, Seqlen: l, Width: w}}
	silu := With(plain, func(p *Conv1d) { p.SiLU = true })
	huge := Case{Params: Conv1d{Batch: 1, Dim: 1, Seqlen: 1 << 35, Width: 1 << 34}}
	for _, c := range []struct {
		op   string
		c    Case
		want float64
	}{
		{"causal_conv1d_fwd", plain, b * d * l * w},
		{"causal_conv1d_fwd", silu, b * d * l * w},
		{"causal_conv1d_fwd", huge, 1 << 69},
		{"causal_conv1d_bwd", plain, 2 * b * d * l * w},
		{"causal_conv1d_bwd", silu, 3 * b * d * l * w},
		{"causal_conv1d_update", Case{Params: Conv1d{Batch: b, Dim: d, Seqlen: 1, Width: w}}, b * d * w},
		{"causal_conv1d_varlen_fwd", plain, b * d * l * w},
		{"causal_conv1d_varlen_states", plain, 0},
		{"rms_norm", Case{Params: RMSNorm{Rows: 3, Dim: 8}}, 0},
	} {
		got, err := declared(t, c.op).MultiplyAdds(c.c)
		if err != nil || got != c.want {
			t.Errorf("MultiplyAdds(%s, %s) = %g, %v, want %g", c.op, c.c, got, err, c.want)
		}
	}
	if _, err := declared(t, "causal_conv1d_fwd").MultiplyAdds(Case{}); err == nil {
		t.Error("MultiplyAdds: no error for a width of 0")
	}
}

// A problem for timing has the arguments and the layouts of a random one.
func TestGenerateForTiming(t *testing.T) {
	for _, op := range Conv1dOperators() {
		for _, c := range []Case{
			{Params: Conv1d{Batch: 3, Dim: 16, Seqlen: 300, Width: 4}},
			{DType: tensor.BFloat16, Slice: true, Params: Conv1d{Batch: 3, Dim: 16, Seqlen: 300, Width: 4, Layout: ChannelLast, NoBias: true,
				WithSeqIdx: true}},
		} {
			want, err := Generate(op, c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := declared(t, op).GenerateForTiming(c)
			if err != nil {
				t.Fatal(err)
			}
			sameArguments(t, got, want)
			if _, err := got.Reference(); err == nil {
				t.Errorf("%s has a reference", got)
			}
		}
	}
}

func sameArguments(t *testing.T, got, want *Problem) {
	t.Helper()
	for i, name := range want.ArgNames {
		g, w := got.Tensor(name), want.Tensor(name)
		if (g == nil) != (w == nil) {
			t.Errorf("%s: %s is %v, want %v", got, name, got.Args[i], want.Args[i])
		}
		if g == nil || w == nil {
			continue
		}
		if layoutName(g) != layoutName(w) {
			t.Errorf("%s: %s is %s, want %s", got, name, layoutName(g), layoutName(w))
		}
	}
	if len(got.Outputs) != len(want.Outputs) {
		t.Errorf("%s: %d outputs, want %d", got, len(got.Outputs), len(want.Outputs))
	}
	x, err := got.Tensor("x").Float64s()
	if err != nil {
		t.Fatal(err)
	}
	if s := rms(x); s < 0.9 || s > 1.1 {
		t.Errorf("%s: x has a root mean square of %g, want about 1", got, s)
	}
}

// In measurements the sequences of a row have 300 positions each.
func TestEvenSequences(t *testing.T) {
	c := Case{Params: Conv1d{Batch: 2, Dim: 1, Seqlen: 700, Width: 4, WithSeqIdx: true}}
	p, err := declared(t, "causal_conv1d_fwd").GenerateForTiming(c)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := p.Tensor("seq_idx").Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if want := float64(i % 700 / 300); id != want {
			t.Fatalf("number %d is %g, want %g", i, id, want)
		}
	}
}

func TestEvenStarts(t *testing.T) {
	p, err := declared(t, "causal_conv1d_varlen_fwd").GenerateForTiming(Case{Params: Conv1d{Batch: 4, Dim: 2, Seqlen: 8, Width: 3}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Tensor("query_start_loc").Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if v != float64(8*i) {
			t.Errorf("starts = %v, want multiples of 8", got)
		}
	}
}

func TestConfigs(t *testing.T) {
	for _, op := range Operators() {
		list := declared(t, op).Configs()
		names := map[string]bool{}
		for _, c := range list {
			if names[c.Name] {
				t.Errorf("%s has %q twice", op, c.Name)
			}
			names[c.Name] = true
			if _, _, err := declared(t, op).op.prepare(c.Case); err != nil {
				t.Errorf("%s %s: %v", op, c.Name, err)
			}
		}
		if len(list) < 4 {
			t.Errorf("%s has the configurations %v, want small ones and those of models", op, names)
		}
	}
	if _, err := Lookup("nothing"); !isType[*UnknownOpError](err) {
		t.Errorf("an operator that is not declared: %v", err)
	}
}

// declared is the declaration of an operator.
func declared(t *testing.T, op string) Declaration {
	t.Helper()
	d, err := Lookup(op)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSweep(t *testing.T) {
	for op, seqlen := range map[string]int64{"causal_conv1d_fwd": 128, "causal_conv1d_update": 1} {
		cases := declared(t, op).Sweep()
		if len(cases) < 8 {
			t.Fatalf("%s: %d cases", op, len(cases))
		}
		for i, c := range cases {
			if (conv(c).Seqlen == 1) != (seqlen == 1) {
				t.Errorf("%s: %s is another kind of case", op, c)
			}
			if slices.Contains(cases[:i], c) || i > 0 && c.Elements() < cases[i-1].Elements() {
				t.Errorf("%s: %s comes after %s", op, c, cases[i-1])
			}
		}
		if usual := declared(t, op).Default(); conv(usual).Seqlen != seqlen {
			t.Errorf("%s: the default case is %s, want one of %d positions", op, usual, seqlen)
		}
	}
}
