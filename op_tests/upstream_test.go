//go:build linux

package optests_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	targets "github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/op_tests/aiterops"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// upstreamEnv returns the environment of programs that use the checkout and the tests' hipcc.
func upstreamEnv(t *testing.T, checkout string) func(name string) string {
	return func(name string) string {
		switch name {
		case settings.CheckoutVariable:
			return checkout
		case "HIPCC":
			return testenv.Tool(t, "hipcc")
		}
		return os.Getenv(name)
	}
}

// TestUpstream builds operators from sources with AIter's layout, for GPUs of five architectures, and calls them on the ROCm
// devices of the machine. AITER_CHECKOUT names a checkout of AIter (make test-aiter). Without it the test uses a small tree of this
// project, which has two of the modules.
func TestUpstream(t *testing.T) {
	testenv.SkipRace(t)
	checkout := upstreamCheckout(t)
	env := upstreamEnv(t, checkout)
	build, err := settings.Settings{Getenv: env}.OpenManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer build.Close()
	reg, err := registry.Open(t.Context(), registry.Options{Getenv: env})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	verifying, err := registry.Open(t.Context(), registry.Options{Getenv: env, Verify: true, References: aiterops.References()})
	if err != nil {
		t.Fatal(err)
	}
	defer verifying.Close()
	all, err := reg.Devices().All()
	if err != nil {
		t.Log(err)
	}
	i := slices.IndexFunc(all, func(d device.Info) bool { return d.Device.Type == tensor.ROCM })
	own, err := targets.Parse("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	if i < 0 {
		t.Log("no ROCm device: the modules are built, not called")
	} else {
		own = all[i].Target
	}
	calls, called := 0, 0
	modules := upstreamModules(own)
	for _, m := range modules {
		t.Run(m.name, func(t *testing.T) {
			requests := []jit.Request{{Module: m.name, Target: own}}
			for _, arch := range m.more {
				if to, err := targets.Parse(arch); err != nil {
					t.Fatal(err)
				} else if !testing.Short() {
					requests = append(requests, jit.Request{Module: m.name, Target: to})
				}
			}
			if _, err := build.Build(t.Context(), requests...); err != nil {
				t.Fatal(err)
			}
			if i < 0 {
				return
			}
			m := m.for8Bits(own)
			for _, op := range m.ops {
				optests.Run(t, reg, op, all[i].Device)
				if _, ok := aiterops.References()[op.Name]; ok { // AITER_VERIFY
					op.Cases = op.Cases[:min(len(op.Cases), 4)]
					t.Run("verified", func(t *testing.T) { optests.Run(t, verifying, op, all[i].Device) })
				}
				if len(op.Cases) > 0 {
					t.Run(op.Name+"/wrong", func(t *testing.T) { calls += wrongNativeCalls(t, reg, op, all[i].Device) })
				}
			}
			for _, c := range m.refused {
				t.Run(c.op.Name+"/refused/"+c.call.String(), func(t *testing.T) { refusedCall(t, reg, c, all[i].Device) })
			}
			if m.also != nil {
				m.also(t, reg, all[i].Device)
			}
			called++
		})
	}
	if i >= 0 {
		t.Run("wrong calls", func(t *testing.T) { wrongUpstreamCalls(t, reg, all[i].Device) })
		t.Logf("%d wrong calls reached C++", calls)
		if called == len(modules) && os.Getenv(settings.CheckoutVariable) != "" && calls < 200 {
			t.Errorf("%d wrong calls reached C++, want 200 or more", calls)
		}
	}
}

// upstreamModule is a module of AIter with the operators to test.
type upstreamModule struct {
	name string
	more []string // architectures to build for besides that of the device
	ops  []optests.Operator
	// refused are calls that an adapter refuses because AIter's kernels would be wrong.
	refused []upstreamRefusal
	also    func(t *testing.T, reg *registry.Registry, dev tensor.Device) // makes calls without tensors
}

// for8Bits returns the module with calls that a GPU without 8-bit floats refuses, in place of their cases.
func (m upstreamModule) for8Bits(to targets.Target) upstreamModule {
	if a := to.Arch(); strings.HasPrefix(a, "gfx94") || strings.HasPrefix(a, "gfx95") || strings.HasPrefix(a, "gfx12") {
		return m
	}
	has := func(c optests.Call) bool {
		for _, v := range c.Args {
			if t, ok := v.(optests.TensorArg); ok && t.DType == registry.Float8E4M3(to) {
				return true
			}
		}
		return false
	}
	m.refused = slices.DeleteFunc(slices.Clone(m.refused), func(r upstreamRefusal) bool { return has(r.call) })
	m.ops = slices.Clone(m.ops)
	for i, op := range m.ops {
		var cases []optests.Call
		for _, c := range op.Cases {
			if has(c) {
				m.refused = append(m.refused, upstreamRefusal{op, c, "expected a type that the device converts, got float8"})
			} else {
				cases = append(cases, c)
			}
		}
		m.ops[i].Cases = cases
	}
	return m
}

// upstreamRefusal is a call and the words of its error.
type upstreamRefusal struct {
	op    optests.Operator
	call  optests.Call
	words string
}

// upstreamCheckout returns the folder of AIter's sources.
func upstreamCheckout(t *testing.T) string {
	if dir := os.Getenv(settings.CheckoutVariable); dir != "" {
		return dir
	}
	dir, err := filepath.Abs("testdata/upstream")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// upstreamModules lists the modules whose operators have float64 references, those of the small tree if there is no checkout.
func upstreamModules(to targets.Target) []upstreamModule {
	ops, rest := upstreamOps(), []string{"gfx90a", "gfx950", "gfx1100", "gfx1201"}
	list := slices.Concat([]upstreamModule{
		{name: "module_aiter_pos_encoding", more: rest, ops: ops[:2]}, {name: "module_aiter_causal_conv1d_update", more: rest, ops: ops[2:3]},
		{name: "module_aiter_rmsnorm", more: rest, ops: ops[3:6]}, {name: "module_aiter_gdr_decode_packed_bf16", ops: ops[6:]},
		quantModule(to), normQuantModule(to), splitQKVModule(), splitGDRModule(),
		cacheModule(to), sortingModule(), gatedNormModule(to), qkNormModule(to),
		{name: "module_aiter_custom_all_reduce", more: []string{"gfx950"}}, // built only: its kernels wait for other GPUs
	}, ropeModules(), activationModules(), moeModules())
	if os.Getenv(settings.CheckoutVariable) != "" {
		return list
	}
	return slices.DeleteFunc(list, func(m upstreamModule) bool {
		return m.name != "module_aiter_pos_encoding" && m.name != "module_aiter_moe_topk"
	})
}

// upstreamOps declares the operators with float64 references.
func upstreamOps() []optests.Operator {
	ops := []optests.Operator{
		aiterops.Operator("aiter_rotary_embedding_fwd"), aiterops.Operator("aiter_batched_rotary_embedding"),
		{Name: "aiter_causal_conv1d_update", Reference: convolved},
		aiterops.Operator("aiter_rms_norm"), aiterops.Operator("aiter_fused_add_rms_norm"), aiterops.Operator("aiter_add_rms_norm"),
		{Name: "aiter_gdr_decode_packed_bf16", Reference: gatedDelta},
	}
	for n, dt := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16} {
		of := func(shape ...int64) optests.TensorArg { return optests.TensorArg{DType: dt, Shape: shape} }
		filled := func(shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape, Fill: normal}
		}
		below := func(n, size int64) optests.TensorArg {
			return optests.TensorArg{DType: tensor.Int64, Shape: []int64{size}, Fill: func(r *rand.Rand, values []float64) {
				for i := range values {
					values[i] = float64(r.Int64N(n))
				}
			}}
		}
		for flags := range 4 {
			rope := map[string]any{"positions": below(7, 3), "query": filled(3, 4*16), "key": filled(3, 16), "head_size": 16,
				"cos_cache": of(14, 6), "sin_cache": of(14, 6), "is_neox": flags&1 != 0, "is_nope_first": flags&2 != 0}
			ops[0].Cases = append(ops[0].Cases, optests.Call{Args: rope})
			batched := map[string]any{"rot_dim": 12, "cos_sin_cache_offsets": below(7, 3)}
			for k, v := range rope {
				batched[k] = v
			}
			ops[1].Cases = append(ops[1].Cases, optests.Call{Args: batched})
		}
		for width := int64(2); width <= 4; width++ {
			ops[2].Cases = append(ops[2].Cases, optests.Call{Seed: uint64(width), Args: map[string]any{"x": of(2, 5, 2),
				"conv_state": filled(2, 5, width-1), "weight": of(5, width), "bias": of(5), "out": of(2, 5, 2), "use_silu": width > 2}})
		}
		dim := []int64{64, 512, 1000}[n]
		ops[3].Cases = append(ops[3].Cases,
			optests.Call{Args: map[string]any{"out": of(3, dim), "input": of(3, dim), "weight": of(dim), "epsilon": 1e-5}},
			optests.Call{Args: map[string]any{"out": of(1, 2, dim), "input": of(1, 2, dim), "weight": of(dim), "epsilon": 1e-5, "gemma_norm": true}})
		ops[4].Cases = append(ops[4].Cases,
			optests.Call{Args: map[string]any{"input": filled(3, dim), "residual": filled(3, dim), "weight": of(dim), "epsilon": 1e-5}})
		ops[5].Cases = append(ops[5].Cases, optests.Call{Args: map[string]any{"out": of(3, dim), "input": of(3, dim),
			"residual_in": of(3, dim), "residual_out": of(3, dim), "weight": of(dim), "epsilon": 1e-5}})
	}
	of := func(shape ...int64) optests.TensorArg { return optests.TensorArg{DType: tensor.BFloat16, Shape: shape} }
	state, first := of(2, 32, 128, 128), func(_ *rand.Rand, values []float64) { values[0] = 1 }
	state.Fill = normal
	ops[6].Cases = []optests.Call{{Args: map[string]any{"mixed_qkv": of(1, 6144), "a": of(1, 32), "b": of(1, 32), "dt_bias": of(32),
		"A_log": optests.TensorArg{DType: tensor.Float32, Shape: []int64{32}}, "state": state, "out": of(1, 1, 32, 128), "scale": 0.1,
		"indices": optests.TensorArg{DType: tensor.Int32, Shape: []int64{1}, Fill: first}}}}
	return ops
}

func normal(r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = r.NormFloat64()
	}
}

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

// convolved appends x to the state of each channel, and filters it.
func convolved(in optests.Inputs) map[string][]float64 {
	dim, n, width := int(in.Shape("x")[1]), int(in.Shape("x")[2]), int(in.Shape("weight")[1])
	var out, state []float64
	for row := range int(in.Shape("x")[0]) * dim {
		line := append(slices.Clone(in.Values["conv_state"][row*(width-1):(row+1)*(width-1)]), in.Values["x"][row*n:(row+1)*n]...)
		for i := range n {
			sum := in.Values["bias"][row%dim]
			for k := range width {
				sum += in.Values["weight"][row%dim*width+k] * line[i+k]
			}
			if in.Call.Args["use_silu"].(bool) {
				sum *= sigmoid(sum)
			}
			out = append(out, sum)
		}
		state = append(state, line[n:]...)
	}
	return map[string][]float64{"out": out, "conv_state": state}
}

// gatedDelta is a step of the gated delta rule of one sequence, whose state is in slot 1.
func gatedDelta(in optests.Inputs) map[string][]float64 {
	const heads, size, groups = 32, 128, 4 // of v; a head of q and k is for 4 of them
	qkv, state := in.Values["mixed_qkv"], slices.Clone(in.Values["state"])
	unit := func(v []float64, scale float64) []float64 {
		sum := 1e-6
		for _, e := range v {
			sum += e * e
		}
		out := slices.Clone(v)
		for i := range out {
			out[i] *= scale / math.Sqrt(sum)
		}
		return out
	}
	var out []float64
	for h := range heads {
		q := unit(qkv[h/groups*size:][:size], 0.1)
		k := unit(qkv[(heads/groups+h/groups)*size:][:size], 1)
		decay := math.Exp(-math.Exp(in.Values["A_log"][h]) * math.Log1p(math.Exp(in.Values["a"][h]+in.Values["dt_bias"][h])))
		for v := range size {
			row := state[((heads+h)*size+v)*size:][:size]
			known := 0.0
			for i := range row {
				row[i] *= decay
				known += row[i] * k[i]
			}
			rest, sum := (qkv[(2*heads/groups+h)*size+v]-known)*sigmoid(in.Values["b"][h]), 0.0
			for i := range row {
				row[i] += rest * k[i]
				sum += row[i] * q[i]
			}
			out = append(out, sum)
		}
	}
	return map[string][]float64{"out": out, "state": state}
}
