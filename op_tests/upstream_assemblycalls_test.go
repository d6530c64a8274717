//go:build linux

package optests_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/jit"
	targets "github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// assemblyCall is a call of an operator of AIter that launches a code object. The recording runtime has 104 compute units.
type assemblyCall struct {
	op      string
	args    map[string]any
	kernel  string  // without namespace
	grid    string  // of blocks of 256 threads
	object  string  // relative to the folder of the architecture
	refused []wrong // in other calls
	unread  int     // bytes of arguments behind those of the kernel; negative: AIter gives fewer than the metadata state
}

// wrong is an argument that is refused, and a part of the error.
type wrong struct {
	name  string
	value any
	words string
}

// check makes the call, and the refused ones. The launch must have the kernel and the code object, of which the metadata state the
// size of the arguments.
func (c assemblyCall) check(t *testing.T, reg *registry.Registry, l *launches, folder string) {
	op, err := reg.Lookup(c.op)
	if err != nil {
		t.Error(err)
		return
	}
	if err := op.Call(t.Context(), c.values(t, reg, op, wrong{})...); err != nil {
		t.Errorf("%s: %v", c.op, err)
		return
	}
	launch, args, code := l.next()
	kernel, shape, _ := strings.Cut(launch, " ")
	want, err := os.ReadFile(filepath.Join(folder, c.object))
	if err != nil {
		t.Fatalf("%s: launch of %q: %v", c.op, launch, err)
	}
	if !strings.Contains(kernel, c.kernel) || shape != c.grid+" 256 1 1" || !bytes.HasPrefix(want, code) || len(code) < 64 {
		t.Errorf("%s: launch of %q with %d bytes of code, want %q with the grid %s and the file %s of %d bytes", c.op, launch, len(code),
			c.kernel, c.grid, c.object, len(want))
	}
	if size, err := argumentsSize(filepath.Base(folder), want, kernel); err != nil || size+c.unread != len(args)/2 {
		t.Errorf("%s: a launch with %d bytes of arguments, the kernel has %d (%v)", c.op, len(args)/2, size, err)
	}
	for _, r := range c.refused {
		err := op.Call(t.Context(), c.values(t, reg, op, r)...)
		if err == nil || !strings.HasPrefix(err.Error(), c.op+": ") || !strings.Contains(err.Error(), r.words) {
			t.Errorf("%s with another %s: got %v, want %q", c.op, r.name, err, r.words)
		}
	}
	err = l.failing(func() error { return op.Call(t.Context(), c.values(t, reg, op, wrong{})...) })
	if err == nil || !strings.HasPrefix(err.Error(), c.op+": aiter_hip_common.h:") ||
		!strings.Contains(err.Error(), "hipModuleLaunchKernel(") {
		t.Errorf("%s with a launch that fails: got %v, want an error that names the call", c.op, err)
	}
}

// checkContents compares all code objects in the libraries of the calls' modules with the files of the checkout.
func checkContents(t *testing.T, reg *registry.Registry, to targets.Target, hsa string, calls []assemblyCall) {
	t.Helper()
	var requests []jit.Request
	for _, c := range calls {
		op, err := reg.Lookup(c.op)
		if err != nil {
			t.Fatal(err)
		}
		r := jit.Request{Module: op.Module(), Target: to}
		if !slices.ContainsFunc(requests, func(x jit.Request) bool { return x.Module == r.Module }) {
			requests = append(requests, r)
		}
	}
	results, err := reg.Manager().Build(t.Context(), requests...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		library, err := os.ReadFile(r.Artifact.Path)
		if err != nil {
			t.Fatal(err)
		}
		files, err := codeobject.Files(library)
		if err != nil || len(files) == 0 {
			t.Errorf("%s has %d code objects, error %v", r.Module, len(files), err)
		}
		for _, f := range files {
			if want, err := os.ReadFile(filepath.Join(hsa, f.Name)); err != nil || !bytes.Equal(f.Data, want) {
				t.Errorf("%s: %s has %d bytes, the file has %d (%v)", r.Module, f.Name, len(f.Data), len(want), err)
			}
		}
	}
}

// values returns the arguments of a call, one of which is replaced.
func (c assemblyCall) values(t *testing.T, reg *registry.Registry, op *registry.Op, other wrong) (args []any) {
	t.Helper()
	for _, a := range op.Schema().Args {
		value, given := c.args[a.Name]
		if a.Name == other.name {
			value, given = other.value, true
		}
		if x, isTensor := value.(optests.TensorArg); isTensor {
			of, err := reg.Devices().New(tensor.Device{Type: tensor.ROCM}, x.DType, x.Shape...)
			if err != nil {
				t.Fatal(err)
			}
			value = of
		} else if !given && a.Default != nil && !a.Default.IsNone() {
			value = a.Default.Any()
		}
		args = append(args, value)
	}
	return args
}

// argumentsSize returns the size of a kernel's arguments, from the metadata of a code object.
func argumentsSize(arch string, code []byte, kernel string) (int, error) {
	kernels, err := codeobject.Object{Target: arch, ELF: code}.Kernels()
	if err != nil {
		return 0, err
	}
	for _, k := range kernels {
		if k.Symbol == kernel {
			return k.Kernarg, nil
		}
	}
	return 0, fmt.Errorf("no kernel %s among %v", kernel, kernels)
}

func assemblyTensor(dt tensor.DType, shape ...int64) optests.TensorArg {
	return optests.TensorArg{DType: dt, Shape: shape}
}

// assemblyCalls lists calls for a target.
func assemblyCalls(to targets.Target) []assemblyCall {
	of, pick := assemblyTensor, func(gfx942, gfx950 string) string {
		if to.Arch() == "gfx942" {
			return gfx942
		}
		return gfx950
	}
	f32, i32, bf16, i8, f8 := tensor.Float32, tensor.Int32, tensor.BFloat16, tensor.Int8, registry.Float8E4M3(to)
	tile16, tile8 := pick("32x64", "96x64"), pick("64x128", "16x128")
	list := []assemblyCall{
		{"aiter_topk_softmax_asm", map[string]any{"topk_weights": of(f32, 9, 4), "topk_indices": of(i32, 9, 4),
			"token_expert_indices": of(i32, 9, 4), "gating_output": of(f32, 9, 128), "need_renorm": true},
			"topksoftmax_4x128x4", "3 1 1", "topksoftmax/topksoftmax_4x128x4.co", []wrong{
				{"gating_output", of(f32, 9, 130), "cannot get heuristic kernel! arch_id:" + to.Arch()},
				{"topk_indices", of(i32, 9, 5), "expected"}, {"gating_output", of(tensor.Float16, 9, 128), "gating_output"}}, 0},
		{"aiter_gemm_a16w16_asm", map[string]any{"A": of(bf16, 70, 128), "B": of(bf16, 192, 128), "out": of(f32, 70, 192),
			"semaphore": of(i32, 1024), "splitK": 0}, "bf16gemm_fp32bf16_tn_" + tile16 + "_splitk_clean", pick("3 3 2", "3 1 2"),
			"bf16gemm/bf16gemm_fp32bf16_tn_" + tile16 + "_splitk_clean.co", []wrong{
				{"semaphore", of(i32, 1000), "argument 'semaphore': expected 1024 adjacent elements or more"},
				{"splitK", 17, "argument 'splitK': expected -1 to 16, got 17"}, {"kernelName", "none", "argument 'kernelName': expected one of "},
				{"bias", of(bf16, 5), "argument 'bias': expected 192 elements"}}, 0},
		{"aiter_gemm_a8w8_asm", map[string]any{"XQ": of(i8, 70, 256), "WQ": of(i8, 512, 256), "x_scale": of(f32, 70, 1),
			"w_scale": of(f32, 1, 512), "Out": of(bf16, 70, 512), "bias": of(f32, 512), "splitK": 1},
			"I8gemm_bf16_perTokenI8_BpreShuffle_" + tile8, pick("4 2 1", "4 5 1"), "i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_" + tile8 + ".co",
			[]wrong{{"bpreshuffle", false, "argument 'bpreshuffle': expected true"}, {"bias", of(f32, 4), "argument 'bias': expected 512 elements"},
				{"splitK", 3, "Kdim alignment check failed"}}, 0},
		{"aiter_gemm_a8w8_blockscale_bpreshuffle_asm", map[string]any{"A": of(f8, 70, 256), "B": of(f8, 512, 256), "out": of(bf16, 70, 512),
			"A_scale": of(f32, 2, 70), "B_scale": of(f32, 4, 2), "bias": of(f32, 512), "splitK": 1},
			"fp8gemm_bf16_blockscale_BpreShuffle_128x128", "4 1 1", "fp8gemm_blockscale/fp8gemm_bf16_blockscale_BpreShuffle_128x128.co",
			[]wrong{{"A_scale", of(f32, 70), "argument 'A_scale': expected 140 elements"}, {"kernelName", "x", "argument 'kernelName'"}}, 0},
		{"aiter_pa_fwd", map[string]any{"Q": of(bf16, 3, 16, 128), "K": of(bf16, 7, 2, 16, 16, 8), "V": of(bf16, 7, 2, 2, 128, 8),
			"block_tables": of(i32, 3, 2), "context_lens": of(i32, 3), "out_": of(bf16, 3, 16, 128)},
			"pa_bf16_noquant_gqa8_1tg_4w", "2 3 1", "pa/pa_bf16_noquant_gqa8_1tg_4w.co", []wrong{
				{"max_qlen", 2, "argument 'qo_indptr': expected the first token"}, {"block_tables", of(i32, 4, 2), "expected"},
				{"V", of(bf16, 7, 2, 128, 17), "argument 'V'"}, {"high_precision", 3, "argument 'high_precision': expected 0, 1 or 2, got 3"}}, 0},
	}
	list = append(list, expertCalls(to)...)
	latent := map[string]any{"Q": of(bf16, 3, 16, 576), "KV": of(bf16, 9, 64, 1, 576), "qo_indptr": of(i32, 4), "kv_indptr": of(i32, 4),
		"kv_page_indices": of(i32, 9), "kv_last_page_lens": of(i32, 3), "num_kv_splits_indptr": of(i32, 4), "max_seqlen_q": 1,
		"softmax_scale": 0.1, "splitData": of(f32, 3, 2, 16, 512), "splitLse": of(f32, 3, 2, 16, 1)}
	list = append(list, assemblyCall{"aiter_mla_decode_stage1_asm_fwd", latent, "mla_dec_stage1_bf16_a16w16_subQ16_mqa16", "1 3 2",
		"mla/mla_dec_stage1_bf16_a16w16_subQ16_mqa16.co", []wrong{{"max_seqlen_q", 2, "expected max_seqlen_q tokens"},
			{"KV", of(bf16, 9, 48, 1, 576), "argument 'KV': expected pages of a power of 2"}, {"splitData", of(bf16, 3, 2, 16, 512), "'splitData'"},
			{"q_scale", of(f32, 1), "arguments 'q_scale' and 'kv_scale': expected none"}}, 160})
	if to.Arch() == "gfx950" {
		f4, e8 := tensor.UInt8, tensor.Float8E8M0FNU
		list = append(list, assemblyCall{"aiter_gemm_a4w4_asm", map[string]any{"A": of(f4, 70, 256), "B": of(f4, 512, 256),
			"A_scale": of(e8, 256, 16), "B_scale": of(e8, 512, 16), "out": of(bf16, 96, 512)}, "f4gemm_bf16_per1x32Fp4_BpreShuffle_192x128",
			"4 1 1", "f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_192x128.co",
			[]wrong{{"out", of(bf16, 70, 512), "argument 'out': expected shape (96, 512)"}, {"log2_k_split", 2, "argument 'log2_k_split'"},
				{"A_scale", of(e8, 96, 16), "argument 'A_scale': expected 256 rows"}, {"kernelName", "x", "argument 'kernelName'"}}, -12})
	}
	if to.Arch() == "gfx942" {
		const whole = "bf16gemm_fp32bf16_tn_32x64_pf3_splitk"
		list = append(list, assemblyCall{"aiter_gemm_a16w16_asm", map[string]any{"A": of(bf16, 70, 128), "B": of(bf16, 192, 128),
			"out": of(f32, 70, 192), "semaphore": of(i32, 1), "splitK": 0, "kernelName": "_ZN5aiter37" + whole + "E"}, whole, "3 3 1",
			"bf16gemm/" + whole + ".co", nil, 16})
		const flat = "flatmm_uk_gfx9_f16f8_128x256x128_1x4x1_16x16x32"
		list = append(list, assemblyCall{"aiter_flatmm_a8w8_blockscale_asm", map[string]any{"XQ": of(f8, 70, 256), "WQ": of(f8, 512, 256),
			"x_scale": of(f32, 2, 70), "w_scale": of(f32, 2, 4), "out": of(tensor.Float16, 70, 512)}, flat, "2 1 1", flat + ".co",
			[]wrong{{"WQ", of(f8, 384, 256), "expected"}, {"x_scale", of(f32, 70, 2), "expected"}}, 0})
	}
	return list
}

// expertCalls lists calls of fused experts: 3 of 8 experts for 5 tokens of 256 elements, 512 between the two matrices.
func expertCalls(to targets.Target) (list []assemblyCall) {
	of, f32, i32, bf16 := assemblyTensor, tensor.Float32, tensor.Int32, tensor.BFloat16
	with := func(dt tensor.DType, rows int64, more map[string]any) map[string]any {
		args := map[string]any{"out": of(bf16, 5, 256), "input": of(dt, 5, 256), "gate": of(dt, 8, rows, 256), "down": of(dt, 8, 256, 512),
			"sorted_token_ids": of(i32, 8*32), "sorted_weights": of(f32, 8*32), "sorted_expert_ids": of(i32, 8), "num_valid_ids": of(i32, 2),
			"topk": 3}
		maps.Copy(args, more)
		return args
	}
	rows := map[string]any{"input_scale": of(f32, 5, 1), "fc1_scale": of(f32, 8, 1, 1024), "fc2_scale": of(f32, 8, 1, 256)}
	blocks := map[string]any{"input_scale": of(f32, 2, 5), "fc1_scale": of(f32, 8, 16), "fc2_scale": of(f32, 8, 8)}
	refused := []wrong{{"topk", 9, "argument 'topk': expected 1 to 8, got 9"}, {"sorted_weights", of(f32, 5), "argument 'sorted_weights'"},
		{"sorted_token_ids", of(i32, 64), "argument 'sorted_token_ids': expected a block of 32"}, {"out", of(bf16, 6, 256), "expected"}}
	if to.Arch() == "gfx942" {
		list = append(list, assemblyCall{"aiter_fmoe", with(bf16, 512, nil), "fmoe_kernel_func", "1 8 1", "fmoe_b16.co", refused, 32})
	}
	scaled := append(refused, wrong{"activation", "relu", "argument 'activation': expected silu or gelu"},
		wrong{"kernelName", "none", "argument 'kernelName': expected one of "}, wrong{"fc1_scale", of(f32, 1, 8192), "argument 'fc1_scale'"})
	quantized := func(op string, args map[string]any, kind, grid, name string, unread int) {
		object := "fmoe/silu/fmoe_bf16_" + kind + "_g1u1_vs_silu_1tg_ps_32x128.co"
		list = append(list, assemblyCall{op: op, args: args, kernel: "fmoe_bf16_" + kind + "_g1u1_vs_" + name + "_32x128", grid: grid,
			object: object, refused: scaled, unread: unread})
	}
	f8, name, grid := registry.Float8E4M3(to), "silu_1tg_ps", "104 1 1"
	quantized("aiter_fmoe_g1u1", with(tensor.Int8, 1024, rows), "pertokenInt8", grid, name, 0)
	quantized("aiter_fmoe_g1u1", with(f8, 1024, rows), "pertokenFp8", grid, name, 0)
	unread := 0
	if to.Arch() == "gfx950" {
		name, grid, unread = "ps_silu", "208 1 1", -32
	}
	quantized("aiter_fmoe_fp8_blockscale_g1u1", with(f8, 1024, blocks), "blockscaleFp8", grid, name, unread)
	return list
}
