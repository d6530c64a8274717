package codeobject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
)

// The file is the output of nvcc 12.4 for testdata/tiny.cu with -O2 -fatbin -Xfatbin -compress-all -gencode
// arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=[sm_90a,compute_90a]. The wanted resources are what `cuobjdump
// -res-usage` prints for it.
func TestFatbins(t *testing.T) {
	data := read(t, "tiny.fatbin")
	twice := append(append(slices.Clone(data), make([]byte, 8)...), data...) // of two units
	objects, err := fatbins(twice)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.Target)
	}
	if !slices.Equal(got, []string{"sm_80", "sm_90a", "sm_80", "sm_90a"}) { // no PTX
		t.Fatalf("targets %v", got)
	}
	for i, want := range [][]Kernel{
		{{Name: "stack", VGPRs: 10, LDS: 1024, Scratch: 4000, Kernarg: 12, MaxThreads: 256}, {Name: "stream", VGPRs: 14, Kernarg: 20}},
		{{Name: "stack", VGPRs: 10, LDS: 2048, Scratch: 4000, Kernarg: 12, MaxThreads: 256}, {Name: "stream", VGPRs: 16, Kernarg: 20}},
	} {
		list, err := objects[i].Kernels()
		if err != nil {
			t.Fatal(err)
		}
		for j := range list {
			if list[j].CodeSize == 0 || list[j].Wave != 32 {
				t.Errorf("%s: %+v", objects[i].Target, list[j])
			}
			list[j].Symbol, list[j].CodeSize, list[j].Wave = "", 0, 0
		}
		if !slices.Equal(list, want) {
			t.Errorf("%s: %+v, want %+v", objects[i].Target, list, want)
		}
	}
}

func TestFatbinsDamaged(t *testing.T) {
	good := read(t, "tiny.fatbin")
	change := func(at int, to uint32) []byte {
		bad := slices.Clone(good)
		binary.LittleEndian.PutUint32(bad[at:], to)
		return bad
	}
	for name, bad := range map[string][]byte{
		"cut off": good[:len(good)-8], "no magic": change(0, 1), "long": change(8, 1<<30), "long entry": change(16+8, 1<<30),
		"zstd": change(16+40, packedZstd), "size of the packed code": change(16+16, 1<<20), "size of the code": change(16+56, 1000),
		"packed code": change(16+72, 0xffffffff), "not packed": change(16+40, 0),
	} {
		var format *FormatError
		if _, err := fatbins(bad); !errors.As(err, &format) {
			t.Errorf("%s: %v, want a FormatError", name, err)
		}
	}
}

// The size of the code is a claim of the file: memory for it is limited.
func TestFatbinBomb(t *testing.T) {
	const packed = 8 << 20
	bomb := make([]byte, fatbinHeader+fatbinEntry+packed)
	binary.LittleEndian.PutUint32(bomb, fatbinMagic)
	binary.LittleEndian.PutUint16(bomb[6:], fatbinHeader)
	binary.LittleEndian.PutUint64(bomb[8:], fatbinEntry+packed)
	entry := bomb[fatbinHeader:]
	binary.LittleEndian.PutUint16(entry, fatbinELF)
	binary.LittleEndian.PutUint32(entry[4:], fatbinEntry)
	binary.LittleEndian.PutUint64(entry[8:], packed)
	binary.LittleEndian.PutUint32(entry[16:], packed)
	binary.LittleEndian.PutUint64(entry[40:], packedLZ4)
	binary.LittleEndian.PutUint64(entry[56:], maxCode+1)
	if _, err := fatbins(bomb); err == nil || !strings.Contains(err.Error(), "impossible sizes") {
		t.Errorf("%v, want an error before the memory is allocated", err)
	}
}

func TestWarps(t *testing.T) {
	for _, c := range []struct {
		target string
		k      Kernel
		warps  int
		limit  string
	}{
		{"sm_90a", Kernel{VGPRs: 32, MaxThreads: 256}, 16, "hardware"},
		{"sm_90", Kernel{VGPRs: 33, MaxThreads: 256}, 12, "registers"},
		{"sm_80", Kernel{VGPRs: 255, MaxThreads: 256}, 2, "registers"},
		{"sm_89", Kernel{VGPRs: 40, MaxThreads: 256}, 12, "hardware"},
		{"sm_90a", Kernel{VGPRs: 32, LDS: 100 << 10, MaxThreads: 256}, 4, "shared memory"},
		{"sm_999", Kernel{VGPRs: 32}, 0, ""},
	} {
		if warps, limit := c.k.WavesPerSIMD(c.target); warps != c.warps || limit != c.limit {
			t.Errorf("%s %+v: %d, %q; want %d, %q", c.target, c.k, warps, limit, c.warps, c.limit)
		}
	}
}

// The file is the output of cuobjdump 12.4 for the kernels on sm_80, without the encodings.
func TestSASS(t *testing.T) {
	d, err := ParseSASS(bytes.NewReader(read(t, "tiny-sm_80.sass")))
	if err != nil {
		t.Fatal(err)
	}
	loop := HottestLoop(d["stream"])
	want := Counts{Instructions: 17, WideLoads: 1, WideStores: 1, LoadBytes: 16, StoreBytes: 16, VALU: 14}
	if loop.Whole || loop.Counts != want {
		t.Errorf("stream: %+v, want %+v", loop, want)
	}
	if whole := count(d["stack"]); whole.Scratch != 2 || whole.LDS != 2 || whole.StoreBytes != 4 {
		t.Errorf("stack: %+v", whole)
	}
	if in := d["stream"][3]; in != (Instruction{Address: 0x30, Guard: "@P0", Mnemonic: "EXIT"}) {
		t.Errorf("%+v", in)
	}
}

func TestSASSCounts(t *testing.T) {
	for text, want := range map[string]Counts{
		"LDG.E.128.CONSTANT R4, desc[UR10][R4.64]":           {WideLoads: 1, LoadBytes: 16},
		"LDG.E.U16 R20, desc[UR14][R20.64]":                  {Loads: 1, LoadBytes: 2},
		"LDG.E.S8 R20, desc[UR14][R20.64]":                   {Loads: 1, LoadBytes: 1},
		"LDG.E R21, desc[UR14][R18.64]":                      {Loads: 1, LoadBytes: 4},
		"LDGSTS.E.BYPASS.LTC128B.128 [R5], desc[UR4][R2.64]": {WideLoads: 1, LoadBytes: 16},
		"STG.E.64 desc[UR10][R8.64], R4":                     {Stores: 1, StoreBytes: 8},
		"STL.128 [R1], R4":                                   {Scratch: 1},
		"SHFL.BFLY PT, R4, R5, 0x1, 0x1f":                    {LDS: 1},
		"HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24":       {Matrix: 1},
		"HMMA.16816.F32 R4, R4, R8, RZ":                      {Matrix: 1},
		"HFMA2.MMA R3, -RZ, RZ, 0, 0":                        {VALU: 1},
		"UIADD3 UR4, UR4, 0x1, URZ":                          {},
		"BAR.SYNC.DEFER_BLOCKING 0x0":                        {},
	} {
		mnemonic, operands, _ := bytes.Cut([]byte(text), []byte(" "))
		want.Instructions = 1
		if got := count([]Instruction{{Mnemonic: string(mnemonic), Operands: string(operands)}}); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func FuzzFatbins(f *testing.F) {
	f.Add(read(f, "tiny.fatbin"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := fatbins(data)
		for _, o := range objects {
			if err != nil || o.Target == "" {
				t.Errorf("object %q, error %v", o.Target, err)
			}
			if list, err := o.Kernels(); err != nil && list != nil {
				t.Error("kernels and an error")
			}
		}
	})
}
