package optests

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

// writeReference writes the reference's results into the outputs among args, which are in the
// order of p.Args.
func writeReference(t *testing.T, p *Problem, args []any) {
	t.Helper()
	want, err := p.Reference()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Outputs {
		if err := args[o.Arg].(*tensor.Tensor).SetFloat64s(want[o.Name]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReferencePasses(t *testing.T) {
	for _, op := range Operators() {
		grid, err := StandardGrid(op)
		if err != nil {
			t.Fatal(err)
		}
		for c := range grid.Sample(100, 2000, 1) {
			if c.Elements() > 20000 {
				continue
			}
			p := generate(t, op, c)
			results, err := Runner{Call: func(_ string, args []any) error { writeReference(t, p, args); return nil }}.Run(p)
			if err != nil || !Passed(results) || len(results) != len(p.Outputs) {
				t.Fatalf("%s: %v %v", p, results, err)
			}
			for _, r := range results {
				if r.BeyondIdeal != 0 {
					t.Errorf("%s: %d elements of %s beyond one rounding", p, r.BeyondIdeal, r.Name)
				}
			}
		}
	}
}

// Each mistake must fail with its description.
func TestMistakesFail(t *testing.T) {
	write := func(o *tensor.Tensor, at int64, b byte) {
		raw, _ := o.Storage().Bytes()
		raw[o.ByteOffset()+at] ^= b
	}
	tests := []struct {
		name    string
		c       Case
		mistake func(out *tensor.Tensor, v []float64)
		want    string
	}{
		{"wrong value", Case{}, func(o *tensor.Tensor, v []float64) { v[8]++; o.SetFloat64s(v) }, "errors 1/42, first at [0 1 1]"},
		{"NaN", Case{}, func(o *tensor.Tensor, v []float64) { v[41] = math.NaN(); o.SetFloat64s(v) }, "first at [1 2 6]: expected *, got NaN"},
		{"infinity", Case{}, func(o *tensor.Tensor, v []float64) { v[0] = math.Inf(1); o.SetFloat64s(v) }, "got +Inf"},
		{"one past the end", Case{}, func(o *tensor.Tensor, _ []float64) { write(o, 42*4, 1) }, "wrote outside the output at byte 168"},
		{"one before the start", Case{}, func(o *tensor.Tensor, _ []float64) { write(o, -1, 1) }, "wrote outside the output at byte -1"},
		{"between rows", Case{Slice: true}, func(o *tensor.Tensor, _ []float64) { write(o, 7*4, 1) }, "wrote outside the output at byte 28"},
		{"between channels", Case{Slice: true, Params: Conv1d{Layout: ChannelLast}}, func(o *tensor.Tensor, _ []float64) { write(o, 3*4, 1) },
			"at byte 12"},
		{"last of the storage", Case{}, func(o *tensor.Tensor, _ []float64) { write(o, 42*4+guardBytes-1, 128) }, "at byte 423"},
		{"nothing written", Case{}, func(o *tensor.Tensor, _ []float64) { poison(o) }, "errors 42/42, first at [0 0 0]: expected *, got NaN"},
		{"tail not written", Case{DType: tensor.BFloat16}, func(o *tensor.Tensor, _ []float64) {
			tail, _ := o.Slice(2, 6, 7)
			poison(tail)
		}, "6 never written"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := test.c
			c.Seed = 5
			c = With(c, func(p *Conv1d) { p.Batch, p.Dim, p.Seqlen, p.Width = 2, 3, 7, 4 })
			p := generate(t, "causal_conv1d_fwd", c)
			results, err := Runner{Call: func(_ string, args []any) error {
				writeReference(t, p, args)
				out := args[0].(*tensor.Tensor)
				test.mistake(out, values(t, out))
				return nil
			}}.Run(p)
			if err != nil || Passed(results) {
				t.Fatalf("%v %v, want %q", results, err, test.want)
			}
			for part := range strings.SplitSeq(test.want, "*") {
				if !strings.Contains(results[0].String(), part) {
					t.Errorf("%v, want %q", results, test.want)
				}
			}
		})
	}
}

// A truncating bfloat16 store is within the tolerance but not ideal.
func TestTruncationIsBeyondIdeal(t *testing.T) {
	p := generate(t, "causal_conv1d_fwd", Case{DType: tensor.BFloat16, Params: Conv1d{Batch: 1, Dim: 8, Seqlen: 64, Width: 4}})
	want, err := p.Reference()
	if err != nil {
		t.Fatal(err)
	}
	cut := slices.Clone(want["out"])
	for i, v := range cut {
		cut[i] = float64(math.Float32frombits(math.Float32bits(float32(v)) &^ 0xffff))
	}
	if err := p.Tensor("out").SetFloat64s(cut); err != nil {
		t.Fatal(err)
	}
	results, err := p.Check(map[string]*tensor.Tensor{"out": p.Tensor("out")})
	if err != nil || !Passed(results) || results[0].BeyondIdeal < 100 {
		t.Fatalf("%+v %v", results, err)
	}
}

// States are copies and compare bit by bit.
func TestStatesAreExact(t *testing.T) {
	p := generate(t, "causal_conv1d_fwd", Case{Params: Conv1d{Batch: 1, Dim: 2, Seqlen: 9, Width: 3, WithFinal: true}})
	writeReference(t, p, p.Args)
	f := p.Tensor("final_states_out")
	raw, _ := f.Storage().Bytes()
	raw[f.ByteOffset()] ^= 1
	results, err := Runner{Call: func(string, []any) error { return nil }}.Run(p)
	if err != nil || results[0].Mismatches != 0 || results[1].Mismatches != 1 {
		t.Fatalf("%v %v", results, err)
	}
}

func TestOverflowToInfinityIsRight(t *testing.T) {
	inf := math.Inf(1)
	tests := []struct {
		dt        tensor.DType
		got, want float64
		dist      float64
	}{
		{tensor.Float16, inf, 70000, 0},
		{tensor.Float16, inf, 60000, inf},
		{tensor.Float16, inf, -70000, inf},
		{tensor.Float32, inf, 1e39, 0},
		{tensor.BFloat16, inf, inf, 0},
		{tensor.Float32, math.NaN(), math.NaN(), 0},
		{tensor.Float32, math.NaN(), 1, inf},
		{tensor.Float32, 1, math.NaN(), inf},
		{tensor.Float32, 0, inf, inf},
	}
	for _, test := range tests {
		if got := distance(test.dt, test.got, test.want); got != test.dist {
			t.Errorf("distance(%s, %v, %v) = %v", test.dt, test.got, test.want, got)
		}
	}
	if (Tolerance{Rel: 1}).allows(inf, inf) {
		t.Error("an infinite error passed")
	}
}

// memoryDevice is a device that copies host tensors and counts the copies.
type memoryDevice struct{ live int }

func (m *memoryDevice) ToDevice(t *tensor.Tensor) (*tensor.Tensor, error) { m.live++; return copyOf(t) }
func (m *memoryDevice) ToHost(t *tensor.Tensor) (*tensor.Tensor, error)   { return copyOf(t) }
func (m *memoryDevice) Free(*tensor.Tensor) error                         { m.live--; return nil }

func copyOf(t *tensor.Tensor) (*tensor.Tensor, error) {
	p := storageLayout{t.DType(), t.Shape(), t.Strides(), t.Offset(), t.Storage().Size()}
	return p.allocate(func(raw []byte) { copyStorage(raw, t) })
}

func TestRunnerMovesTensors(t *testing.T) {
	m := &memoryDevice{}
	p := generate(t, "causal_conv1d_bwd", caseWithAllArguments())
	run := Runner{Device: m, Call: func(_ string, args []any) error {
		if m.live != 11 {
			t.Errorf("%d tensors on the device, want 11", m.live)
		}
		writeReference(t, p, args)
		return nil
	}}
	results, err := run.Run(p)
	if err != nil || !Passed(results) || m.live != 0 {
		t.Fatalf("%v %v, %d tensors left", results, err, m.live)
	}
	if n, _ := countPoison(p.Tensor("dx")); n != p.Tensor("dx").Numel() {
		t.Error("the host's output was written")
	}
	refused := errors.New("refused")
	run.Call = func(string, []any) error { return refused }
	if _, err := run.Run(p); !errors.Is(err, refused) || m.live != 0 {
		t.Errorf("%v, %d tensors left", err, m.live)
	}
}

func TestCheckNeedsWholeStorage(t *testing.T) {
	p := generate(t, "causal_conv1d_fwd", caseWithAllArguments())
	got := map[string]*tensor.Tensor{}
	if _, err := p.Check(got); !isType[*ArgumentError](err) {
		t.Errorf("no outputs: %v", err)
	}
	for _, o := range p.Outputs {
		compact, err := p.Tensor(o.Name).Compact()
		if err != nil {
			t.Fatal(err)
		}
		got[o.Name] = compact
	}
	if _, err := p.Check(got); !isType[*ArgumentError](err) {
		t.Errorf("compacted outputs: %v", err)
	}
}

func TestResultJSON(t *testing.T) {
	raw, err := json.Marshal([]Result{{Name: "out", MaxAbsErr: math.Inf(1), MaxRelErr: 0.5, Mismatches: 1, Elements: 9}})
	want := `[{"name":"out","max_abs_err":null,"max_rel_err":0.5,"mismatches":1,"elements":9,"beyond_ideal":0,"unwritten":0,` +
		`"canary_broken":false}]`
	if err != nil || string(raw) != want {
		t.Errorf("%s %v\nwant %s", raw, err, want)
	}
}

func TestGrid(t *testing.T) {
	g := conv1dGrid()
	n := 0
	for range g.All() {
		n++
	}
	if n != g.Len() || n != 6*3*2*32*4*20 {
		t.Errorf("%d cases, Len %d", n, g.Len())
	}
	seen, mixes := map[any]int{}, map[[2]tensor.DType]bool{}
	for c := range g.Sample(200, 1<<20, 3) {
		seen[conv(c).Seqlen]++
		seen[conv(c).Layout]++
		seen[c.DType]++
		mixes[[2]tensor.DType{c.DType, c.WeightDType}] = true
		if conv(c).Batch*conv(c).Dim*conv(c).Seqlen > 1<<20 {
			t.Errorf("%s has too many elements", c)
		}
	}
	for _, l := range []int64{1, 63, 151, 4096} {
		if seen[l] != 10 {
			t.Errorf("seqlen %d occurs %d times, want 10", l, seen[l])
		}
	}
	if seen[ChannelLast] != 100 || seen[tensor.Float16] < 60 || len(mixes) != 9 {
		t.Errorf("uneven: %v, %d mixes of types", seen, len(mixes))
	}
}
