package optests_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aiter-go/aiter/device"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// The suite's own flags, after -args:
//
//	go test ./op_tests -run TestSuite -timeout 0 -v -args -grid=full
var (
	gridFlag    = flag.String("grid", "sample", "cases of the standard grid to run: sample or full")
	samplesFlag = flag.Int("samples", 160, "number of cases of an operator with -grid=sample")
	seedFlag    = flag.Uint64("seed", 1, "which cases -grid=sample takes, and their inputs")
	limitFlag   = flag.Int64("limit", 1<<19, "elements above which a sampled case is made smaller")
	farFlag     = flag.Bool("far", false, "on a GPU too, offsets beyond 2^32 elements: takes 45 GB there and 60 GB here")
	deviceFlag  = flag.String("device", "cpu", "where to run: cpu, cuda:0, rocm:0")
)

// TestSuite holds every operator to the reference over the standard grid.
func TestSuite(t *testing.T) {
	target := open(t)
	for _, op := range optests.Operators() {
		t.Run(op, func(t *testing.T) { target.try(t, op, gridCases(t)) })
	}
}

// TestEdges holds every operator to the reference at the sizes that break kernels.
func TestEdges(t *testing.T) {
	target := open(t)
	for _, op := range optests.Operators() {
		t.Run(op, func(t *testing.T) { target.try(t, op, slices.Values(optests.EdgeCases())) })
	}
}

// Rows of whole vectors, of all widths that have kernels of their own, with as many waves a
// channel and channels a block as a GPU's kernel for small problems has, and one more.
func TestWholeRows(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	var cases []optests.Case
	for _, size := range [][3]int64{
		{1, 1, 8}, {3, 5, 24}, {5, 133, 64}, {1, 270, 128}, {1, 531, 256}, {2, 271, 256}, {8, 2, 512}, {4, 3, 1024}, {1, 3, 8192},
		{4, 3, 2056}, {31, 3, 40}, {2, 40, 768},
	} {
		for width := range int64(7) {
			n := len(cases)
			cases = append(cases, optests.Case{
				Batch: size[0], Dim: size[1], Seqlen: size[2], Width: 2 + width, DType: types[n%3], SiLU: n%4 > 0, NoBias: n%5 == 1,
				WithInitial: n%5 == 2, WithFinal: n%3 == 2, Seed: uint64(n),
			})
			switch n % 7 {
			case 3:
				cases[n].WeightDType = tensor.Float32
			case 5:
				cases[n].GradDType = tensor.Float32
			}
			if n%4 == 2 {
				cases[n].Read.Apart, cases[n].Dout.Apart, cases[n].Written.Apart = 8, 24, 16
			}
		}
		for n := range 3 {
			cases = append(cases, optests.Case{Batch: size[0], Dim: size[1], Seqlen: size[2], Width: 4, DType: types[n], SiLU: true, Seed: uint64(n)})
			cases = append(cases, optests.Case{Batch: size[0], Dim: size[1], Seqlen: size[2], Width: 4, DType: types[n], SiLU: true, WithStates: true})
		}
	}
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd"} {
		t.Run(op, func(t *testing.T) { target.try(t, op, slices.Values(cases)) })
	}
}

// Activations that lie anywhere while weights are packed, for each width that has kernels for such: one of x, dout and what is
// written off or with its rows further apart, all of them, alike or not, and whole vectors with three distances.
func TestLies(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	var cases []optests.Case
	for n, lie := range [][3]optests.Lie{
		{{}, {}, {}}, {{Off: 1}, {Off: 1}, {Off: 1}}, {{Off: 1}, {}, {}}, {{}, {Off: 1}, {}}, {{}, {}, {Off: 1}},
		{{Apart: 1}, {Apart: 1}, {Apart: 1}}, {{Apart: 1}, {}, {}}, {{}, {Apart: 1}, {}}, {{}, {}, {Apart: 1}},
		{{Apart: 8}, {Apart: 16}, {Apart: 24}}, {{Off: 1}, {Off: 2}, {Off: 3}}, {{Off: 3, Apart: 2}, {Off: 2, Apart: 3}, {Off: 1, Apart: 2}},
		{{Off: 2, Apart: 6}, {Off: 2, Apart: 4}, {Off: 2, Apart: 2}},
	} {
		for _, size := range [][3]int64{{2, 34, 50}, {2, 33, 51}, {2, 40, 48}, {1, 2, 17}, {3, 1, 16}} {
			for width := range int64(7) {
				for layout := range optests.Layout(2) {
					i := len(cases)
					cases = append(cases, optests.Case{
						Batch: size[0], Dim: size[1], Seqlen: size[2], Width: 2 + width, DType: types[(n+int(width)+i/14)%3], Layout: layout,
						Read: lie[0], Dout: lie[1], Written: lie[2], SiLU: i%3 > 0, NoBias: i%7 == 1, Seed: uint64(i),
					})
				}
			}
		}
	}
	t.Run("causal_conv1d_fwd", func(t *testing.T) { target.try(t, "causal_conv1d_fwd", slices.Values(cases)) })
	// Sums over few positions of one channel are near nothing too often to be judged by how many are off.
	many := slices.DeleteFunc(cases, func(c optests.Case) bool { return c.Dim < 3 })
	t.Run("causal_conv1d_bwd", func(t *testing.T) { target.try(t, "causal_conv1d_bwd", slices.Values(many)) })
}

// Padding that is not a number, and a tap that does not exist beside infinity: neither may be seen.
func TestNotSeen(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	for op, of := range map[string][]string{"causal_conv1d_fwd": {"x"}, "causal_conv1d_bwd": {"x", "dout"}} {
		t.Run(op, func(t *testing.T) {
			for n, seqlen := range []int64{12, 13, 64, 384, 640, 784, 1024} {
				for width := range int64(7) {
					for layout := range optests.Layout(2) {
						i := n*14 + int(width)*2 + int(layout)
						c := optests.Case{Batch: int64(1 + i%2), Dim: []int64{64, 3, 33}[i%3], Seqlen: seqlen, Width: 2 + width, DType: types[i/2%3], Layout: layout, SiLU: i%5 > 1, WithSeqIdx: true, Seed: uint64(i)}
						target.unseen(t, op, c, of, padding)
						if c.WithSeqIdx, c.SiLU = false, false; seqlen > 15 {
							target.unseen(t, op, c, of[len(of)-1:], infinity)
						}
					}
				}
			}
		})
	}
}

// unseen replaces values of some of a problem's tensors and runs it.
func (g target) unseen(t *testing.T, op string, c optests.Case, names []string, replace func(c optests.Case, seq []float64, i int64) (float64, bool)) {
	t.Helper()
	p, err := optests.Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	seq := make([]float64, c.Batch*c.Seqlen)
	if c.WithSeqIdx {
		if seq, err = p.Tensor("seq_idx").Float64s(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		values, err := p.Tensor(name).Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for i := range values {
			if v, ok := replace(c, seq, int64(i)); ok {
				values[i] = v
			}
		}
		if err := p.Tensor(name).SetFloat64s(values); err != nil {
			t.Fatal(err)
		}
	}
	results, err := g.runner.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	if !optests.Passed(results) {
		t.Errorf("%s: %v", p, results)
	}
}

// padding is not a number.
func padding(c optests.Case, seq []float64, i int64) (float64, bool) {
	return math.NaN(), seq[i/(c.Dim*c.Seqlen)*c.Seqlen+i%c.Seqlen] < 0
}

// infinity is at one position of each row.
func infinity(c optests.Case, _ []float64, i int64) (float64, bool) {
	return math.Inf(1), i%c.Seqlen == c.Seqlen/2
}

// Sequences in so much memory that a GPU looks them up once for all channels.
func TestLargeSequences(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.BFloat16, tensor.Float32, tensor.Float16}
	var fwd, varlen []optests.Case
	for n := range 12 {
		if *deviceFlag == "cpu" && n%5 != 1 {
			continue // there such sizes are nothing special, and the reference takes a second each
		}
		c := optests.Case{Batch: 2, Dim: 264, Seqlen: 8200, Width: int64(2 + n%4), WithSeqIdx: true, DType: types[n%3], Layout: optests.Layout(n / 3 % 2)}
		c.Width, c.SiLU, c.Seed = min(c.Width, 4), n%5 > 0, uint64(n)
		if c.Layout == optests.ChannelLast {
			c.Seqlen += 3
		}
		fwd = append(fwd, c)
		c.Batch, c.Dim, c.Seqlen = 60, 520, 136
		c.WithInitial, c.WithFinal = n%4 > 1, n%2 > 0
		varlen = append(varlen, c)
	}
	t.Run("causal_conv1d_fwd", func(t *testing.T) { target.try(t, "causal_conv1d_fwd", slices.Values(fwd)) })
	t.Run("causal_conv1d_varlen_fwd", func(t *testing.T) { target.try(t, "causal_conv1d_varlen_fwd", slices.Values(varlen)) })
}

// Backward in so much memory that a GPU has its large kernels, and in the last case that channel-last
// strips go on in the next row, with brief ones behind them.
func TestLargeBackward(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.BFloat16, tensor.Float32, tensor.Float16}
	var cases []optests.Case
	for n := range 13 {
		c := optests.Case{Batch: 3, Dim: 520, Seqlen: 1403, Width: int64(2 + n%7), DType: types[n%3], Layout: optests.ChannelLast, Seed: uint64(n)}
		if n%5 == 4 {
			c.Layout = optests.ChannelFirst
		}
		c.SiLU, c.NoBias, c.WithStates, c.WithSeqIdx = n%4 > 0, n%4 == 2, n%3 == 1, n%7 == 3
		if n == 12 {
			c.Batch, c.Dim, c.Seqlen, c.Width, c.SiLU = 11, 1032, 4101, 4, true
		}
		if *deviceFlag != "cpu" || n == 4 || n == 6 {
			cases = append(cases, c) // on the CPU such sizes are nothing special, and the reference takes seconds
		}
	}
	target.try(t, "causal_conv1d_bwd", slices.Values(cases))
}

// Two runs of the same problem are bit-equal, whatever the order of threads.
func TestDeterminism(t *testing.T) {
	target := open(t)
	ragged := optests.Case{Batch: 3, Dim: 130, Seqlen: 1111, Width: 4, SiLU: true, DType: tensor.BFloat16, WeightDType: tensor.Float32, WithStates: true, Seed: 11}
	whole := optests.Case{Batch: 3, Dim: 130, Seqlen: 1112, Width: 4, SiLU: true, DType: tensor.BFloat16, Seed: 12}
	last, wholeLast := ragged, whole
	last.Layout, wholeLast.Layout = optests.ChannelLast, optests.ChannelLast
	for _, op := range optests.Operators() {
		for _, c := range []optests.Case{ragged, last, whole, wholeLast} {
			first := target.outputs(t, op, c)
			for range 3 {
				for name, bits := range target.outputs(t, op, c) {
					if !slices.Equal(bits, first[name]) {
						t.Errorf("%s %s: %s differs from run to run", op, c, name)
					}
				}
			}
		}
	}
}

// target is a place where operators run.
type target struct {
	reg    *registry.Registry
	runner optests.Runner
}

func open(t *testing.T) target {
	t.Helper()
	reg, err := registry.Open(t.Context(), registry.Options{CacheDir: cmp.Or(os.Getenv("AITER_JIT_DIR"), t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	dev, err := tensor.ParseDevice(*deviceFlag)
	if err != nil {
		t.Fatal(err)
	}
	run := optests.Runner{Call: func(op string, args []any) error { return call(t.Context(), reg, op, args) }}
	if !dev.IsHost() {
		run.Device = remote{reg.Devices(), dev}
	}
	return target{reg, run}
}

func call(ctx context.Context, reg *registry.Registry, name string, args []any) error {
	op, err := reg.Lookup(name)
	if err != nil {
		return err
	}
	return op.Call(ctx, args...)
}

// remote is a device other than the host.
type remote struct {
	*device.Devices
	dev tensor.Device
}

var _ optests.Device = remote{}

func (r remote) ToDevice(t *tensor.Tensor) (*tensor.Tensor, error) {
	return r.Devices.ToDevice(t, r.dev)
}

// try reports every case that is not as good as float32 sums rounded once.
func (g target) try(t *testing.T, op string, cases iter.Seq[optests.Case]) {
	start, n, failed := time.Now(), 0, 0
	for trial := range g.runner.Try(op, cases) {
		n++
		if trial.Ideal() {
			continue
		}
		t.Error(trial)
		if failed++; failed == 10 {
			t.Fatalf("stopped after %d failures in %d cases", failed, n)
		}
	}
	if n == 0 {
		t.Error("no cases")
	}
	t.Logf("%d cases in %.1fs", n, time.Since(start).Seconds())
}

// run calls the problem's operator once and returns its outputs, on the host.
func (g target) run(t *testing.T, p *optests.Problem) map[string]*tensor.Tensor {
	t.Helper()
	placed, err := g.runner.Place(p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = placed.Free() }()
	if err := g.runner.Call(p.Op, placed.Args); err != nil {
		t.Fatal(err)
	}
	out, err := placed.Outputs()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// outputs runs the case once and returns the bits of what came out.
func (g target) outputs(t *testing.T, op string, c optests.Case) map[string][]byte {
	t.Helper()
	p, err := optests.Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	bits := map[string][]byte{}
	for name, out := range g.run(t, p) {
		bits[name] = rowMajor(t, out)
	}
	return bits
}

func rowMajor(t *testing.T, v *tensor.Tensor) []byte {
	t.Helper()
	c, err := v.Compact()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func gridCases(t *testing.T) iter.Seq[optests.Case] {
	t.Helper()
	grid := optests.StandardGrid()
	switch *gridFlag {
	case "full":
		return grid.All()
	case "sample":
		return grid.Sample(*samplesFlag, *limitFlag, *seedFlag)
	}
	t.Fatal(fmt.Errorf("-grid=%s: expected sample or full", *gridFlag))
	return nil
}
