package optests_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
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
	machineTargets = flag.String("machinecode.targets", "",
		"AMD targets whose kernels are all checked; by default gfx942 and gfx1201 with some operators in bfloat16")
	machineCache = flag.String("machinecode.cache", "", "cache folder; by default a new one")
)

// machineOps are the operators whose kernels are checked by default, by their modules. The kernels of the others are mostly
// the same.
var machineOps = map[string][]string{
	"module_causal_conv1d": {"causal_conv1d_fwd", "causal_conv1d_update", "causal_conv1d_bwd", "causal_conv1d_serve_update",
		"causal_conv1d_serve_fwd"},
	"module_rms_norm": {"rms_norm"},
}

// bfloat16Kernels is the number of kernels in the units of machineOps in bfloat16. A first call compiles all kernels of its
// units, so each further one makes first calls slower and must be worth that: some call must reach it.
var bfloat16Kernels = map[string]int{"module_causal_conv1d": 105, "module_rms_norm": 16}

// limit is a requirement on the machine code of some kernels.
type limit struct {
	kernels string // regular expression of their names
	what    string
	holds   func(codeobject.Report) bool
}

// minWaves requires occupancy.
func minWaves(kernels string, n int) limit {
	return limit{kernels, fmt.Sprintf("at least %d waves on each SIMD unit", n), func(r codeobject.Report) bool {
		return r.Waves >= n
	}}
}

// minWide requires loads and stores of 16 bytes.
func minWide(kernels string, loads, stores int) limit {
	return limit{kernels, fmt.Sprintf("at least %d loads and %d stores of 16 bytes", loads, stores), func(r codeobject.Report) bool {
		return r.All.WideLoads >= loads && r.All.WideStores >= stores
	}}
}

// minMatrix requires products of matrix cores.
func minMatrix(kernels string, n int) limit {
	return limit{kernels, fmt.Sprintf("at least %d products of matrix cores", n), func(r codeobject.Report) bool { return r.All.Matrix >= n }}
}

// maxVALU limits the vector instructions for each element that a thread computes.
func maxVALU(kernels string, elements, most int) limit {
	return limit{kernels, fmt.Sprintf("at most %d vector instructions for each element", most), func(r codeobject.Report) bool {
		return r.All.VALU <= elements*most
	}}
}

var limits = []limit{
	{".", "no scratch memory", func(r codeobject.Report) bool { return r.Scratch == 0 && r.All.Scratch == 0 }},
	{".", "no spilled registers", func(r codeobject.Report) bool { return r.VGPRSpills == 0 && r.SGPRSpills == 0 }},
	minWaves(".", 2),
	{`fwd::.*(_vectorized_|_channel_first_|NoMask)`, "no local data share",
		func(r codeobject.Report) bool { return r.LDS == 0 && r.All.LDS == 0 }},
	minWaves(`causal_conv1d_multirow_kernel`, 7),
	minWide(`fwd::causal_conv1d_fwd_channel_first_kernel<.*, \d, false>`, 4, 4),
	minWide(`fwd::causal_conv1d_fwd_channel_last_kernel<.*, 4, 8, .*NoMask`, 4, 4),
	minWide(`fwd::causal_conv1d_fwd_vectorized_channel_first_kernel`, 2, 2),
	// FilterKind 2 is kPartial, 1 is kPacked. Loads of 8 positions, of the 3 or 2 before them, and of weights and biases.
	minWide(`fwd::causal_conv1d_fwd_vectorized_channel_last_kernel<(aiter::(bf16_t|half_t), 4, 8|float, 4, 4), .*FilterKind\)2`, 13, 8),
	minWide(`fwd::causal_conv1d_fwd_vectorized_channel_last_kernel<(aiter::(bf16_t|half_t), 4, 8|float, 4, 4), .*FilterKind\)1`, 16, 8),
	// At its memory bandwidth an MI300X can issue about 38 vector instructions for each element. A thread has 16, 64 and 32
	// elements.
	maxVALU(`fwd::causal_conv1d_fwd_vectorized_channel_first_kernel<aiter::(bf16_t|half_t), 4, `, 16, 20),
	maxVALU(`fwd::causal_conv1d_fwd_vectorized_channel_first_kernel<aiter::(bf16_t|half_t), 8, `, 16, 24),
	maxVALU(`fwd::causal_conv1d_fwd_vectorized_channel_last_kernel<aiter::(bf16_t|half_t)`, 64, 20),
	maxVALU(`fwd::causal_conv1d_fwd_channel_first_kernel<aiter::(bf16_t|half_t), 4, false>`, 32, 38),
	// Loads of x, three of the state, weights and a bias; stores of out, three of the state, and the zeros of padding.
	minWide(`update::causal_conv1d_decode_kernel<.*, 3, 8, `, 9, 5),
	// Vectors of the state of four sequences.
	minWide(`update::causal_conv1d_update_flat_kernel`, 4, 4),
	minWaves(`update::causal_conv1d_update_flat_kernel`, 5),
	minWaves(`update::causal_conv1d_update_team_kernel`, 4),
	minWaves(`serve::causal_conv1d_serve_update_kernel`, 7),
	minWaves(`serve::causal_conv1d_serve_few_kernel<.*, 2, .*FilterKind\)1`, 8),
	minWaves(`serve::causal_conv1d_serve_few_kernel<(aiter::bf16_t|float)`, 4),
	minWaves(`serve::causal_conv1d_serve_few_kernel`, 3), // float16 with a float32 filter: with 4 waves it spills
	minWaves(`serve::causal_conv1d_serve_tokens_kernel`, 3),
	minWaves(`serve::causal_conv1d_serve_fwd_heads_kernel`, 4),
	// In float16 and float32 a thread's values need more registers than in bfloat16.
	// The launch plans rely on these waves (amd_waves in bwd/plan.h).
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 4, 1, `, 8),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 8, 1, `, 5),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<(float, (3, 4|4, 4, false|8, 2)|aiter::(bf16_t|half_t), (4, 4|8, 2)), `, 3),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<aiter::(bf16_t|half_t), 3, 4, `, 4),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 2, 4, `, 4),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 8, `, 3),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<.*, 4, 4, false, `, 3),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<aiter::bf16_t, [34], 4, false, `, 4),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<(aiter::(bf16_t|half_t), 2, 4|.*, 4, 1), `, 5),
	minWaves(`bwd::causal_conv1d_bwd_channel_last_kernel<aiter::(bf16_t|half_t), 8, `, 4),
	// The last argument is the RowKind: 0 kWhole, 1 kRagged, 2 kSeqIdx.
	minWaves(`bwd::causal_conv1d_bwd_channel_first_kernel<.*, [234], .*0>`, 7),
	minWaves(`bwd::causal_conv1d_bwd_channel_first_kernel<.*, (4, .*1|8, .*0)>`, 5),
	minWaves(`bwd::causal_conv1d_bwd_channel_first_kernel<.*, 4, .*2>`, 4),
	{`bwd::causal_conv1d_bwd_channel_first_kernel<.*, [234], .*0>`, "16-byte loads and stores", func(r codeobject.Report) bool {
		return r.Loop.WideLoads >= 2 && r.Loop.WideStores >= 1
	}},
	{`bwd::causal_conv1d_bwd_channel_first_kernel<.*, [234], .*0>`, "no local data share in the loop, nor its crossbar",
		func(r codeobject.Report) bool { return r.Loop.LDS == 0 }},
	// A lane has 8 elements. At its memory bandwidth an MI300X has time for 1.5 times the instructions of forward.
	{`bwd::causal_conv1d_bwd_channel_first_kernel<aiter::(bf16_t|half_t), 4, .*0>`, "at most 40 vector instructions for each element",
		func(r codeobject.Report) bool { return r.Loop.VALU <= 8*40 }},
	// Four blocks of a column's four steps are unrolled; on gfx950 two of two steps, each of two products.
	minMatrix(`causal_conv1d_wide_(channel_last_)?kernel<aiter::bf16_t, `, 8),
	minWaves(`causal_conv1d_wide_kernel<aiter::(bf16_t|half_t), .*true>`, 4),
	minWide(`causal_conv1d_wide_kernel<aiter::(bf16_t|half_t), .*true>`, 2, 2),
	// A lane has 16 outputs of an item with 64 lanes, 32 with 32. Half of the code is for the start of a channel and for rare outputs.
	maxVALU(`causal_conv1d_wide_kernel<aiter::bf16_t, .*true>`, 16, 110),
	minWaves(`causal_conv1d_bwd_wide_kernel<`, 3),
	minWaves(`rms_norm_`, 4),
	// x and weight of 1, 2, 4 or 8 vectors, or of one of each pass; out.
	minWide(`rms_norm_vectorized_kernel<aiter::(bf16_t|half_t), aiter::(bf16_t|half_t), [01], `, 2, 1),
	minWide(`rms_norm_vectorized_kernel<aiter::(bf16_t|half_t), float, 2, `, 6, 2),
	minWide(`rms_norm_vectorized_kernel<aiter::(bf16_t|half_t), aiter::(bf16_t|half_t), 4, `, 8, 4),
	minWide(`rms_norm_vectorized_kernel<aiter::(bf16_t|half_t), aiter::(bf16_t|half_t), 8, `, 16, 8),
	{`rms_norm_vectorized_kernel`, "16-byte loads and stores only", func(r codeobject.Report) bool {
		return r.All.LoadBytes == 16*r.All.WideLoads && r.All.StoreBytes == 16*r.All.WideStores
	}},
	maxVALU(`rms_norm_vectorized_kernel<aiter::(bf16_t|half_t), .*, 4, false>`, 32, 20),
}

// TestMachineCode checks the machine code of the kernels for AMD GPUs against limits.
func TestMachineCode(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
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
	matched := make([]int, len(limits))
	type build struct{ target, module string }
	compiled := map[build][]string{}
	for _, res := range results {
		for _, r := range inspect(t, res.Artifact.Path, d) {
			checkLimits(t, r, matched)
			of := build{r.Target, res.Module}
			if !slices.Contains(compiled[of], r.Name) { // parts of different operators or layouts share kernels
				compiled[of] = append(compiled[of], r.Name)
			}
		}
	}
	if *machineTargets == "" {
		for of, kernels := range compiled {
			if want := bfloat16Kernels[of.module]; len(kernels) != want {
				t.Errorf("%s, %s: %d kernels of bfloat16, want %d:\n%s", of.module, of.target, len(kernels), want, strings.Join(kernels, "\n"))
			}
			if of.module == "module_causal_conv1d" {
				checkReachable(t, of.target, kernels)
			}
		}
	}
	for i, l := range limits {
		if matched[i] == 0 {
			t.Errorf("limit %q: no kernel matches %q", l.what, l.kernels)
		}
	}
}

func machineRequests(t *testing.T, reg *registry.Registry) []jit.Request {
	t.Helper()
	targets, err := arch.ParseList(cmp.Or(*machineTargets, "gfx942,gfx1201"))
	if err != nil {
		t.Fatal(err)
	}
	var reqs []jit.Request
	for _, x := range targets {
		for name, ops := range machineOps {
			if *machineTargets != "" {
				reqs = append(reqs, jit.Request{Module: name, Target: x})
				continue
			}
			for _, part := range bfloat16Parts(t, reg, x, ops) {
				reqs = append(reqs, jit.Request{Module: name, Target: x, Part: part})
			}
		}
	}
	return reqs
}

// bfloat16Parts are the parts of operators in bfloat16. Other ranges of widths have the same kernels for AMD GPUs.
func bfloat16Parts(t *testing.T, reg *registry.Registry, x arch.Target, ops []string) []opconfig.Part {
	t.Helper()
	var parts []opconfig.Part
	for _, op := range ops {
		mod, _, err := reg.Manager().Config().Op(op)
		if err != nil {
			t.Fatal(err)
		}
		values := map[string][]string{"dtype": {"bfloat16"}}
		if slices.ContainsFunc(mod.Axes, func(a opconfig.Axis) bool { return a.Name == "width" }) {
			values["width"] = []string{"1-4", "7-8", "34-"}
		}
		list, err := mod.Parts(x, opconfig.Selection{Ops: []string{op}, Values: values})
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, list...)
	}
	return parts
}

func inspect(t *testing.T, path string, d codeobject.Disassembler) []codeobject.Report {
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

// checkLimits checks a kernel against the limits and counts the kernels of each limit.
func checkLimits(t *testing.T, r codeobject.Report, matched []int) {
	t.Helper()
	if r.Loop == nil {
		t.Errorf("%s %s: the kernel was not disassembled", r.Target, r.Name)
		return
	}
	for i, l := range limits {
		if !regexp.MustCompile(l.kernels).MatchString(r.Name) {
			continue
		}
		matched[i]++
		if !l.holds(r) {
			t.Errorf("%s %s: want %s; got kernel %+v, instructions %+v, %d waves", r.Target, r.Name, l.what, r.Kernel, r.All, r.Waves)
		}
	}
}

// checkReachable checks that a call reaches each compiled decoding kernel, by the conditions of their dispatch.
func checkReachable(t *testing.T, target string, kernels []string) {
	t.Helper()
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
			t.Errorf("%s: no call reaches the compiled kernel %s%s>", target, decode, name)
		}
	}
	for name := range want {
		if !got[name] {
			t.Errorf("%s: the kernel %s%s> is missing", target, decode, name)
		}
	}
}

// reachableDecoders returns the template arguments of the decoding kernels that update/update.hip selects for a type of which
// 16 bytes hold vector elements: for widths 2 to 4, and for states with adjacent values, with adjacent channels or without
// vectors.
func reachableDecoders(dtype string, vector int) map[string]bool {
	const dim = 64
	reached := map[string]bool{}
	for length := 1; length <= 3; length++ {
		reached[fmt.Sprintf("%s, %s, %d, 1, true", dtype, dtype, length)] = true
		for _, strides := range [][2]int{{length, 1}, {1, dim}} { // strides of channels and of values
			adjacent := (strides[1] == 1 || length == 1) && strides[0] == length
			for _, weight := range []string{dtype, "float"} {
				reached[fmt.Sprintf("%s, %s, %d, %d, %t", dtype, weight, length, vector, adjacent)] = true
			}
		}
	}
	return reached
}
