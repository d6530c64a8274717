package codeobject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// item is an entry of a bundle under construction.
type item struct {
	name string
	code []byte
}

// bundleOf makes a bundle like clang-offload-bundler: the table, then the code objects, each aligned.
func bundleOf(items ...item) []byte {
	const align = 64
	head := binary.LittleEndian.AppendUint64([]byte(bundleMagic), uint64(len(items)))
	size := len(head)
	for _, it := range items {
		size += 24 + len(it.name)
	}
	offset := roundUp(size, align)
	var body []byte
	for _, it := range items {
		head = binary.LittleEndian.AppendUint64(head, uint64(offset+len(body)))
		head = binary.LittleEndian.AppendUint64(head, uint64(len(it.code)))
		head = binary.LittleEndian.AppendUint64(head, uint64(len(it.name)))
		head = append(head, it.name...)
		body = append(body, it.code...)
		body = append(body, make([]byte, roundUp(len(body), align)-len(body))...)
	}
	return append(append(head, make([]byte, offset-len(head))...), body...)
}

const triple = "hipv4-amdgcn-amd-amdhsa--"

func TestUnbundle(t *testing.T) {
	one := bundleOf(item{"host-x86_64-unknown-linux-gnu-", nil}, item{triple + "gfx942", []byte("first")},
		item{triple + "gfx90a:xnack-", []byte("second")})
	two := bundleOf(item{triple + "gfx942", []byte("third")})
	got, err := Unbundle(append(append(one, make([]byte, 4096)...), two...))
	if err != nil {
		t.Fatal(err)
	}
	want := []Object{{"gfx942", []byte("first")}, {"gfx90a:xnack-", []byte("second")}, {"gfx942", []byte("third")}}
	if len(got) != len(want) {
		t.Fatalf("%d objects, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Target != want[i].Target || !bytes.Equal(got[i].ELF, want[i].ELF) {
			t.Errorf("object %d is %s %q, want %s %q", i, got[i].Target, got[i].ELF, want[i].Target, want[i].ELF)
		}
	}
}

func TestUnbundleDamaged(t *testing.T) {
	good := bundleOf(item{triple + "gfx942", []byte("code")})
	for name, change := range map[string]func([]byte) []byte{
		"other bytes":  func([]byte) []byte { return []byte("ELF and so on") },
		"cut off":      func(b []byte) []byte { return b[:40] },
		"many entries": func(b []byte) []byte { b[len(bundleMagic)+5] = 1; return b },
		"far away":     func(b []byte) []byte { b[len(bundleMagic)+8+6] = 1; return b },
		"huge":         func(b []byte) []byte { b[len(bundleMagic)+16+7] = 0xff; return b },
		"long name":    func(b []byte) []byte { b[len(bundleMagic)+24+3] = 1; return b },
		"compressed":   func(b []byte) []byte { return append([]byte(packedMagic), b...) },
	} {
		t.Run(name, func(t *testing.T) {
			var format *FormatError
			if objects, err := Unbundle(change(bytes.Clone(good))); !errors.As(err, &format) {
				t.Errorf("got %d objects and error %v, want a *FormatError", len(objects), err)
			}
		})
	}
}

func TestExtractWithoutCode(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if _, err := Extract(self); !errors.Is(err, ErrNoCode) {
		t.Errorf("error is %v, want ErrNoCode", err)
	}
}

// The files are the output of hipcc 6.4 for testdata/tiny.hip with -nogpuinc -O2 --cuda-device-only
// --no-gpu-bundle-output.
func TestKernels(t *testing.T) {
	for target, wave := range map[string]int{"gfx942": 64, "gfx1201": 32} {
		list, err := Object{target, read(t, "tiny-"+target+".co")}.Kernels()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 2 {
			t.Fatalf("%s: %d kernels, want 2", target, len(list))
		}
		for _, k := range list {
			stack := k.Name == "stack"
			if k.Wave != wave || k.MaxThreads != 1024 || k.VGPRs == 0 || k.SGPRs == 0 || k.CodeSize == 0 || k.Kernarg == 0 {
				t.Errorf("%s: %+v", target, k)
			}
			if (k.Scratch >= 256) != stack || (k.LDS == 1024) != stack {
				t.Errorf("%s: %s has %d bytes of scratch and %d of LDS", target, k.Name, k.Scratch, k.LDS)
			}
		}
	}
}

func TestKernelsDamaged(t *testing.T) {
	good := read(t, "tiny-gfx942.co")
	if _, err := (Object{"gfx942", good[:100]}).Kernels(); err == nil {
		t.Error("a cut-off code object was read")
	}
	bad := bytes.Replace(good, []byte("amdhsa.kernels"), []byte("\xc1mdhsa.kernels"), 1)
	bad = bytes.Replace(bad, []byte{0x83, 0xae}, []byte{0x83, 0xc1}, 1)
	var format *FormatError
	if _, err := (Object{"gfx942", bad}).Kernels(); !errors.As(err, &format) {
		t.Errorf("error is %v, want a *FormatError", err)
	}
}

func TestWavesPerSIMD(t *testing.T) {
	for _, c := range []struct {
		target string
		k      Kernel
		waves  int
		limit  string
	}{
		{"gfx942", Kernel{VGPRs: 64, SGPRs: 60, Wave: 64, MaxThreads: 256}, 8, "hardware"},
		{"gfx942", Kernel{VGPRs: 65, SGPRs: 60, Wave: 64, MaxThreads: 256}, 7, "VGPRs"},
		{"gfx942", Kernel{VGPRs: 512, SGPRs: 60, Wave: 64, MaxThreads: 256}, 1, "VGPRs"},
		{"gfx90a:xnack-", Kernel{VGPRs: 32, SGPRs: 106, Wave: 64, MaxThreads: 256}, 7, "SGPRs"},
		{"gfx942", Kernel{VGPRs: 32, SGPRs: 60, Wave: 64, MaxThreads: 256, LDS: 32 << 10}, 2, "LDS"},
		{"gfx950", Kernel{VGPRs: 32, SGPRs: 60, Wave: 64, MaxThreads: 256, LDS: 32 << 10}, 5, "LDS"},
		{"gfx1100", Kernel{VGPRs: 96, SGPRs: 106, Wave: 32, MaxThreads: 256}, 16, "hardware"},
		{"gfx1100", Kernel{VGPRs: 97, SGPRs: 106, Wave: 32, MaxThreads: 256}, 12, "VGPRs"},
		{"gfx1201", Kernel{VGPRs: 97, SGPRs: 106, Wave: 64, MaxThreads: 256}, 7, "VGPRs"},
		{"gfx9999", Kernel{VGPRs: 1, Wave: 64}, 0, ""},
	} {
		if waves, limit := c.k.WavesPerSIMD(c.target); waves != c.waves || limit != c.limit {
			t.Errorf("%s %+v: %d waves limited by %q, want %d by %q", c.target, c.k, waves, limit, c.waves, c.limit)
		}
	}
}

// The file is the output of llvm-objdump 21 for testdata/tiny-gfx942.co.
func TestHottestLoop(t *testing.T) {
	d, err := ParseDisassembly(bytes.NewReader(read(t, "tiny-gfx942.s")))
	if err != nil {
		t.Fatal(err)
	}
	loop := HottestLoop(d["stream"])
	want := Counts{Instructions: 14, WideLoads: 1, WideStores: 1, LoadBytes: 16, StoreBytes: 16, VALU: 8}
	if loop.Whole || loop.Counts != want || loop.From != 0x194c || loop.To != 0x1994 {
		t.Errorf("stream: %+v, want %+v", loop, want)
	}
	if whole := HottestLoop(d["stack"]); !whole.Whole || whole.LDS != 2 || whole.StoreBytes < 256 {
		t.Errorf("stack: %+v", whole)
	}
}

func TestCounts(t *testing.T) {
	for text, want := range map[string]Counts{
		"global_load_dwordx4 v[0:3], v[4:5], off":                   {WideLoads: 1, LoadBytes: 16},
		"global_load_b128 v[0:3], v4, s[0:1]":                       {WideLoads: 1, LoadBytes: 16},
		"global_load_ushort v0, v1, s[0:1]":                         {Loads: 1, LoadBytes: 2},
		"global_load_short_d16_hi v0, v1, s[0:1]":                   {Loads: 1, LoadBytes: 2},
		"global_load_d16_u8 v0, v1, s[0:1]":                         {Loads: 1, LoadBytes: 1},
		"global_load_d16_hi_b16 v0, v1, s[0:1]":                     {Loads: 1, LoadBytes: 2},
		"global_load_dwordx3 v[0:2], v1, s[0:1]":                    {Loads: 1, LoadBytes: 12},
		"global_store_b64 v0, v[2:3], s[0:1]":                       {Stores: 1, StoreBytes: 8},
		"buffer_store_dwordx4 v[0:3], v4, s[0:3], 0":                {WideStores: 1, StoreBytes: 16},
		"scratch_store_dword off, v0, s0":                           {Scratch: 1},
		"ds_bpermute_b32 v0, v1, v2":                                {LDS: 1},
		"v_fma_f32 v0, v1, v2, v3":                                  {VALU: 1},
		"v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xf":               {VALU: 1, DPP: 1},
		"v_add_f32_e32 v0, v1, v2 quad_perm:[1,0,3,2]":              {VALU: 1, DPP: 1},
		"v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v2, 0":             {VALU: 2},
		"v_mfma_f32_16x16x16_bf16_1k a[0:3], v[0:1], v[2:3], 0":     {Matrix: 1},
		"v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]": {Matrix: 1},
		"s_waitcnt vmcnt(0)":                                        {},
	} {
		mnemonic, operands, _ := bytes.Cut([]byte(text), []byte(" "))
		want.Instructions = 1
		if got := count([]Instruction{{Mnemonic: string(mnemonic), Operands: string(operands)}}); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func FuzzUnbundle(f *testing.F) {
	f.Add(bundleOf(item{"host-x86_64-unknown-linux-gnu-", nil}, item{triple + "gfx942", []byte("code")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := Unbundle(data)
		for _, o := range objects {
			if err != nil || o.Target == "" || len(o.ELF) == 0 || len(o.ELF) > len(data) {
				t.Errorf("object %q of %d bytes, error %v", o.Target, len(o.ELF), err)
			}
		}
	})
}

func FuzzKernels(f *testing.F) {
	f.Add(read(f, "tiny-gfx942.co"))
	f.Add(read(f, "tiny-gfx1201.co"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Object{"gfx942", data}.Kernels()
		if err != nil && list != nil {
			t.Error("kernels and an error")
		}
		for _, k := range list {
			k.WavesPerSIMD("gfx942")
			k.WavesPerSIMD("gfx1201")
		}
	})
}

func FuzzParseDisassembly(f *testing.F) {
	f.Add(read(f, "tiny-gfx942.s"))
	f.Add([]byte("0000000000001900 <k>:\n\ts_branch 3 // 000000001904: BF82FFFF <k+0x4>\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := ParseDisassembly(bytes.NewReader(data))
		if err != nil {
			return
		}
		for symbol, code := range d {
			if l := HottestLoop(code); l.Instructions > len(code) {
				t.Errorf("%s: a loop of %d instructions in a function of %d", symbol, l.Instructions, len(code))
			}
		}
	})
}

func TestTargetOf(t *testing.T) {
	for _, target := range []string{"gfx942", "gfx1201"} {
		if got, err := TargetOf(bytes.NewReader(read(t, "tiny-"+target+".co"))); err != nil || got != target {
			t.Errorf("%s: made for %q, error %v", target, got, err)
		}
	}
	good := read(t, "tiny-gfx942.co")
	for name, code := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "cut off": good[:100],
		"no target":  bytes.Replace(good, []byte("amdhsa.target"), []byte("amdhsa.tarGet"), 1),
		"odd target": bytes.Replace(good, []byte("amdhsa--gfx942"), []byte("amdhsa__gfx942"), 1),
	} {
		if got, err := TargetOf(bytes.NewReader(code)); err == nil {
			t.Errorf("%s: made for %q, want an error", name, got)
		}
	}
}
