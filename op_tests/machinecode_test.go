package optests_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	arch "github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
)

var (
	machineTargets = flag.String("machinecode.targets", "", "AMD targets of which all kernels are looked at; by default those of forward, update and backward in bfloat16 for gfx942 and gfx1201")
	machineCache   = flag.String("machinecode.cache", "", "cache folder; by default a new one")
)

// limit is what the machine code of some kernels must keep to.
type limit struct {
	kernels string // expression
	what    string
	holds   func(codeobject.Report) bool
}

var limits = []limit{
	{".", "no scratch memory", func(r codeobject.Report) bool { return r.Scratch == 0 && r.All.Scratch == 0 }},
	{".", "no spilled registers", func(r codeobject.Report) bool { return r.VGPRSpills == 0 && r.SGPRSpills == 0 }},
	{".", "at least 2 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 2 }},
	{`fwd::.*(_vectorized_|_channel_first_|NoMask)`, "no local data share", func(r codeobject.Report) bool { return r.LDS == 0 && r.All.LDS == 0 }},
	{`causal_conv1d_multirow_kernel`, "at least 7 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 7 }},
	{`fwd::causal_conv1d_fwd_channel_first_kernel<.*, \d, false>`, "16-byte loads and stores", func(r codeobject.Report) bool {
		return r.All.WideLoads >= 4 && r.All.WideStores >= 4
	}},
	{`fwd::causal_conv1d_fwd_channel_last_kernel<.*, 4, 8, .*NoMask`, "16-byte loads and stores", func(r codeobject.Report) bool {
		return r.All.WideLoads >= 4 && r.All.WideStores >= 4
	}},
	{`fwd::causal_conv1d_fwd_vectorized_channel_first_kernel`, "16-byte loads and stores", func(r codeobject.Report) bool {
		return r.All.WideLoads >= 2 && r.All.WideStores >= 2
	}},
	// 8 positions and the 3 or 2 before them; weights and biases.
	{`fwd::causal_conv1d_fwd_vectorized_channel_last_kernel<(aiter::(bf16_t|half_t), 8|float, 4), true`, "16-byte loads and stores", func(r codeobject.Report) bool {
		return r.All.WideLoads >= 13 && r.All.WideStores >= 8
	}},
	{`fwd::causal_conv1d_fwd_vectorized_channel_last_kernel<(aiter::(bf16_t|half_t), 8|float, 4), false`, "16-byte loads and stores", func(r codeobject.Report) bool {
		return r.All.WideLoads >= 16 && r.All.WideStores >= 8
	}},
	// An MI300X has about 38 instructions an element at its memory's limit; of a thread's elements there are 16, 64 and 32.
	{`fwd::causal_conv1d_fwd_vectorized_channel_first_kernel<aiter::(bf16_t|half_t), .*VectorizedFilter`, "at most 20 vector instructions an element",
		func(r codeobject.Report) bool { return r.All.VALU <= 16*20 }},
	{`fwd::causal_conv1d_fwd_vectorized_channel_first_kernel<aiter::(bf16_t|half_t), .*WideFilter`, "at most 24 vector instructions an element",
		func(r codeobject.Report) bool { return r.All.VALU <= 16*24 }},
	{`fwd::causal_conv1d_fwd_vectorized_channel_last_kernel<aiter::(bf16_t|half_t)`, "at most 20 vector instructions an element",
		func(r codeobject.Report) bool { return r.All.VALU <= 64*20 }},
	{`fwd::causal_conv1d_fwd_channel_first_kernel<aiter::(bf16_t|half_t), 4, false>`, "at most 38 vector instructions an element",
		func(r codeobject.Report) bool { return r.All.VALU <= 32*38 }},
	// x, three of state, weights and a bias; out and three of state, and the zeros of padding.
	{`update::causal_conv1d_decode_kernel<.*, 3, 8, `, "16-byte loads and stores", func(r codeobject.Report) bool {
		return r.All.WideLoads >= 9 && r.All.WideStores >= 5
	}},
	// In float16 and float32 a thread's values take more registers than in bfloat16.
	// The launch plans count on these waves (amd_waves in bwd/plan.h).
	{`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 4, 1, `, "at least 8 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 8 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 8, 1, `, "at least 5 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 5 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<float, (3, 4|4, 4, false|8, 2), `, "at least 3 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 3 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<aiter::(bf16_t|half_t), 3, 4, `, "at least 4 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 4 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<aiter::(bf16_t|half_t), 4, 4, `, "at least 3 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 3 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 2, 4, `, "at least 4 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 4 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 8, `, "at least 3 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 3 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 4, 4, false, `, "at least 3 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 3 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<aiter::bf16_t, [34], 4, false, `, "at least 4 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 4 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<(aiter::(bf16_t|half_t), 2, 4|.*, 4, 1), `, "at least 5 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 5 }},
	{`bwd::causal_conv1d_bwd_channel_last_kernel<aiter::(bf16_t|half_t), 8, `, "at least 4 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 4 }},
	// The last argument is the RowKind: 0 kWhole, 1 kRagged, 2 kSeqIdx.
	{`bwd::causal_conv1d_bwd_channel_first_kernel<.*, [234], .*0>`, "at least 7 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 7 }},
	{`bwd::causal_conv1d_bwd_channel_first_kernel<.*, (4, .*1|8, .*0)>`, "at least 5 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 5 }},
	{`bwd::causal_conv1d_bwd_channel_first_kernel<.*, 4, .*2>`, "at least 4 waves a SIMD unit", func(r codeobject.Report) bool { return r.Waves >= 4 }},
	{`bwd::causal_conv1d_bwd_channel_first_kernel<.*, [234], .*0>`, "16-byte loads and stores", func(r codeobject.Report) bool {
		return r.Loop.WideLoads >= 2 && r.Loop.WideStores >= 1
	}},
	{`bwd::causal_conv1d_bwd_channel_first_kernel<.*, [234], .*0>`, "nothing of the loop through the local data share, its crossbar neither", func(r codeobject.Report) bool {
		return r.Loop.LDS == 0
	}},
	// 8 elements of a lane; at its memory's limit an MI300X has time for half as many again as forward.
	{`bwd::causal_conv1d_bwd_channel_first_kernel<aiter::(bf16_t|half_t), 4, .*0>`, "at most 40 vector instructions an element",
		func(r codeobject.Report) bool { return r.Loop.VALU <= 8*40 }},
}

// TestMachineCode holds what the compiler makes of the kernels for AMD GPUs.
func TestMachineCode(t *testing.T) {
	hipcc, objdump := testenv.Tool(t, "hipcc"), testenv.Tool(t, "llvm-objdump")
	env := func(name string) string {
		switch name {
		case "HIPCC":
			return hipcc
		case "LLVM_OBJDUMP":
			return objdump
		case "PATH", "HOME", "TMPDIR":
			return os.Getenv(name)
		}
		return ""
	}
	cacheDir := *machineCache
	if cacheDir == "" {
		cacheDir = t.TempDir()
	}
	ctx := context.Background()
	reg, err := registry.Open(ctx, registry.Options{CacheDir: cacheDir, Getenv: env})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	results, err := reg.Manager().Build(ctx, machineRequests(t, reg)...)
	if err != nil {
		t.Fatal(err)
	}
	d, err := (&toolchain.Finder{Env: env}).Disassembler(ctx)
	if err != nil {
		t.Fatal(err)
	}
	held := make([]int, len(limits))
	compiled := map[string][]string{}
	for _, res := range results {
		for _, r := range inspected(t, res.Artifact.Path, d) {
			hold(t, r, held)
			compiled[r.Target] = append(compiled[r.Target], r.Name)
		}
	}
	if *machineTargets == "" {
		for name, kernels := range compiled {
			holdReachable(t, name, kernels)
		}
	}
	for i, l := range limits {
		if held[i] == 0 {
			t.Errorf("%s of %q: there is no such kernel", l.what, l.kernels)
		}
	}
}

func machineRequests(t *testing.T, reg *registry.Registry) []jit.Request {
	t.Helper()
	names, ops := *machineTargets, []string{"causal_conv1d_fwd"}
	if names == "" {
		names, ops = "gfx942,gfx1201", []string{"causal_conv1d_fwd", "causal_conv1d_update", "causal_conv1d_bwd"}
	}
	targets, err := arch.ParseList(names)
	if err != nil {
		t.Fatal(err)
	}
	var reqs []jit.Request
	for _, x := range targets {
		for _, name := range ops {
			mod, _, err := reg.Manager().Config().Op(name)
			if err != nil {
				t.Fatal(err)
			}
			specs := []opconfig.Part{{}}
			if *machineTargets == "" {
				sel := opconfig.Selection{Ops: []string{name}, Values: map[string][]string{"dtype": {"bfloat16"}}}
				if specs, err = mod.Parts(x, sel); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range specs {
				reqs = append(reqs, jit.Request{Module: mod.Name, Target: x, Part: s})
			}
		}
	}
	return reqs
}

func inspected(t *testing.T, path string, d codeobject.Disassembler) []codeobject.Report {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	list, err := codeobject.Inspect(context.Background(), file, d)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// hold checks a kernel against the limits, and counts those that concern it.
func hold(t *testing.T, r codeobject.Report, held []int) {
	t.Helper()
	if r.Loop == nil {
		t.Errorf("%s %s: not disassembled", r.Target, r.Name)
		return
	}
	for i, l := range limits {
		if !regexp.MustCompile(l.kernels).MatchString(r.Name) {
			continue
		}
		held[i]++
		if !l.holds(r) {
			t.Errorf("%s %s: want %s; %+v, in all %+v, %d waves", r.Target, r.Name, l.what, r.Kernel, r.All, r.Waves)
		}
	}
}

// bfloat16Kernels is how many kernels the units of forward, update and backward in bfloat16 have together. One more is one more to
// compile at each first call: whoever changes the number shows that a call reaches the kernel.
const bfloat16Kernels = 61

// holdReachable checks that no kernel is compiled that no call reaches: the decoding kernels by the conditions of their
// dispatch, all others by their number.
func holdReachable(t *testing.T, target string, kernels []string) {
	t.Helper()
	if len(kernels) != bfloat16Kernels {
		t.Errorf("%s: %d kernels of bfloat16, want %d:\n%s", target, len(kernels), bfloat16Kernels, strings.Join(kernels, "\n"))
	}
	const decode = "update::causal_conv1d_decode_kernel<"
	got := map[string]bool{}
	for _, name := range kernels {
		if _, arguments, ok := strings.Cut(name, decode); ok {
			got[strings.TrimSuffix(arguments, ">")] = true
		}
	}
	want := reachableDecoders("aiter::bf16_t", 8)
	for name := range got {
		if !want[name] {
			t.Errorf("%s: no call reaches %s%s>", target, decode, name)
		}
	}
	for name := range want {
		if !got[name] {
			t.Errorf("%s: there is no %s%s>", target, decode, name)
		}
	}
}

// reachableDecoders is the template arguments of the decoding kernels that update/update.hip chooses for a type with so many
// elements in 16 bytes: for widths 2 to 4, states whose values or whose channels are adjacent, or that have no vectors.
func reachableDecoders(dtype string, vector int) map[string]bool {
	const dim = 64
	reached := map[string]bool{}
	for length := 1; length <= 3; length++ {
		reached[fmt.Sprintf("%s, %s, %d, 1, true", dtype, dtype, length)] = true
		for _, strides := range [][2]int{{length, 1}, {1, dim}} { // of channels and of values
			adjacent := (strides[1] == 1 || length == 1) && strides[0] == length
			for _, weight := range []string{dtype, "float"} {
				reached[fmt.Sprintf("%s, %s, %d, %d, %t", dtype, weight, length, vector, adjacent)] = true
			}
		}
	}
	return reached
}
