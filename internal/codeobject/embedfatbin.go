package codeobject

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// FatbinFormat names the layout of the output of [EmbedFatbin]. It must change with the layout.
const FatbinFormat = "fatbin 2"

// csrc/include/aiter/cuda_host.h declares the structs that EmbedFatbin writes: DeviceCode, Shard for each fatbin, Kernel for each kernel.
const (
	deviceCodePrefix = "aiter_device_code_" // the symbol of DeviceCode has the unit's ID behind it
	deviceCodeSize   = 16                   // a pointer, the number of shards, the compute capability times 10
	shardSize        = 24                   // two pointers, the number of kernels
	kernelSize       = 16                   // two pointers: the kernel's function in host code, its name
)

// EmbedFatbin is [Embed] for the output of the CUDA device passes of a unit, fatbins with the code of one target. The object file has a
// section .nv_fatbin, and a table of the kernels, whose functions are in the host object. A kernel that host code never
// launches has no function, and stays out of the table. If several fatbins have a kernel, the table refers to the
// one with the most code; in the others the kernel is empty (AITER_KERNEL_CODE in csrc/include/aiter/gpu/codegen.h).
func EmbedFatbin(host []byte, fatbins ...[]byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(host))
	if err != nil {
		return nil, &FormatError{"host object", err.Error()}
	}
	defer f.Close()
	w := fatbinObject{machine: f.Machine, osabi: f.OSABI}
	functions, local, err := w.readHost(f)
	if err != nil {
		return nil, err
	}
	own := map[string]kernelCode{}
	var order []string // of the kernels
	for i, fatbin := range fatbins {
		code, err := Fatbin(fatbin)
		if err != nil {
			return nil, err
		}
		if w.capability, err = computeCapability(code.Target); err != nil {
			return nil, err
		}
		kernels, err := code.Kernels()
		if err != nil {
			return nil, err
		}
		for _, k := range kernels {
			if local[withoutLinkage(k.Symbol)] || strings.Contains(k.Symbol, "_INTERNAL_") || strings.Contains(k.Symbol, "_GLOBAL__N_") {
				return nil, &FormatError{"device code",
					"host code cannot refer to the kernel " + k.Name + "; take it out of the anonymous namespace, and remove `static`"}
			}
			if !functions[k.Symbol] {
				continue
			}
			text, err := cubinText(code, k.Symbol)
			if err != nil {
				return nil, err
			}
			here, before := kernelCode{i, k, text}, own[k.Symbol]
			if before.compareSize(here) == 0 && !bytes.Equal(before.text, text) {
				return nil, &FormatError{"device code", "two shards of the unit have code of the kernel " + k.Name}
			}
			if before.compareSize(here) < 0 {
				own[k.Symbol] = here
			}
			if before.text == nil {
				order = append(order, k.Symbol)
			}
		}
	}
	for i, fatbin := range fatbins {
		s := fatbinShard{data: fatbin}
		for _, symbol := range order {
			if own[symbol].shard == i {
				s.kernels = append(s.kernels, symbol)
			}
		}
		if len(s.kernels) > 0 || len(fatbins) == 1 {
			w.shards = append(w.shards, s)
		}
	}
	return w.bytes()
}

// kernelCode is the code of a kernel in one of a unit's fatbins.
type kernelCode struct {
	shard  int // the number of the fatbin
	kernel Kernel
	text   []byte
}

// compareSize compares two codes of one kernel. An empty kernel is shorter or, if the padding hides that, has fewer registers.
func (c kernelCode) compareSize(d kernelCode) int {
	return cmp.Or(cmp.Compare(c.kernel.CodeSize, d.kernel.CodeSize), cmp.Compare(c.kernel.VGPRs, d.kernel.VGPRs))
}

// internalLinkage is the letter in front of a static function's name, which C++ compilers write and nvcc leaves out of kernels.
var internalLinkage = regexp.MustCompile(`L([0-9])`)

// withoutLinkage returns a mangled name by which static functions of host code and of device code can be compared.
func withoutLinkage(symbol string) string { return internalLinkage.ReplaceAllString(symbol, "$1") }

// readHost finds the symbol of the device code, and returns the symbols that other objects can name, and the
// names of local ones without linkage.
func (w *fatbinObject) readHost(host *elf.File) (functions, local map[string]bool, err error) {
	symbols, err := host.Symbols()
	if err != nil {
		return nil, nil, &FormatError{"host object", err.Error()}
	}
	functions, local = map[string]bool{}, map[string]bool{}
	for _, s := range symbols {
		switch {
		case s.Section == elf.SHN_UNDEF && strings.HasPrefix(s.Name, deviceCodePrefix):
			w.symbol = s.Name
		case s.Section != elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_LOCAL:
			functions[s.Name] = true
		case s.Section != elf.SHN_UNDEF:
			local[withoutLinkage(s.Name)] = true
		}
	}
	if w.symbol == "" {
		return nil, nil, &FormatError{"host object", "it does not refer to its device code; does the source include aiter/platform.h?"}
	}
	return functions, local, nil
}

// computeCapability returns 900 for "sm_90a".
func computeCapability(name string) (int, error) {
	sm, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, "sm_"), "a"))
	if err != nil {
		return 0, &FormatError{"target", fmt.Sprintf("it is %q, expected a name like \"sm_90a\"", name)}
	}
	return 10 * sm, nil
}

// fatbinObject is an ELF object with fatbins and a table of kernels, whose functions other objects define.
type fatbinObject struct {
	machine    elf.Machine
	osabi      elf.OSABI
	symbol     string // of the table
	capability int
	shards     []fatbinShard
}

// fatbinShard is a fatbin and its kernels.
type fatbinShard struct {
	data    []byte
	kernels []string
}

// kernels returns the kernels of all shards.
func (w fatbinObject) kernels() (all []string) {
	for _, s := range w.shards {
		all = append(all, s.kernels...)
	}
	return all
}

// fatbins returns the fatbins one after another, and where each starts.
func (w fatbinObject) fatbins() (data []byte, starts []int) {
	for _, s := range w.shards {
		data = append(data, make([]byte, -len(data)&7)...) // aligned to 8 bytes
		starts = append(starts, len(data))
		data = append(data, s.data...)
	}
	return data, starts
}

// pointerRelocation returns the relocation of a pointer.
func pointerRelocation(m elf.Machine) (uint32, error) {
	switch m {
	case elf.EM_X86_64:
		return uint32(elf.R_X86_64_64), nil
	case elf.EM_AARCH64:
		return uint32(elf.R_AARCH64_ABS64), nil
	}
	return 0, &FormatError{"host object", fmt.Sprintf("it is for %s, expected %s or %s", m, elf.EM_X86_64, elf.EM_AARCH64)}
}

// Sections and symbols of a fatbinObject.
const (
	fatbinIndex = iota + 1
	tableIndex
	relocationsIndex
	stackIndex
	symbolsIndex
	stringsIndex

	fatbinBase  = 1 // local symbols: the starts of the two sections
	tableBase   = 2
	tableSymbol = 3
	firstKernel = 4
)

func (w fatbinObject) bytes() ([]byte, error) {
	kind, err := pointerRelocation(w.machine)
	if err != nil {
		return nil, err
	}
	fatbins, starts := w.fatbins()
	table, relocations := w.table(kind, starts)
	symbols, strtab := w.symbols()
	names, at := sectionNames(fatbinSection, ".data.rel.ro", ".rela.data.rel.ro", ".note.GNU-stack", ".symtab", ".strtab", ".shstrtab")
	data := uint32(elf.SHT_PROGBITS)
	b := image{}
	b.section(elf.Section64{})
	b.put(fatbins, elf.Section64{Name: at[0], Type: data, Flags: uint64(elf.SHF_ALLOC), Addralign: 8})
	b.put(table, elf.Section64{Name: at[1], Type: data, Flags: uint64(elf.SHF_ALLOC | elf.SHF_WRITE), Addralign: 8})
	b.put(encode(relocations), elf.Section64{Name: at[2], Type: uint32(elf.SHT_RELA), Flags: uint64(elf.SHF_INFO_LINK), Link: symbolsIndex,
		Info: tableIndex, Addralign: 8, Entsize: 24})
	b.put(nil, elf.Section64{Name: at[3], Type: data, Addralign: 1}) // keeps the stack non-executable
	b.put(encode(symbols), elf.Section64{Name: at[4], Type: uint32(elf.SHT_SYMTAB), Link: stringsIndex, Info: tableSymbol, Addralign: 8,
		Entsize: symbolSize})
	b.put([]byte(strtab), elf.Section64{Name: at[5], Type: uint32(elf.SHT_STRTAB), Addralign: 1})
	b.put([]byte(names), elf.Section64{Name: at[6], Type: uint32(elf.SHT_STRTAB), Addralign: 1})
	return b.finish(relocatable{machine: w.machine, osabi: w.osabi}), nil
}

// table returns the table of kernels: DeviceCode, the shards, the kernels, their names.
func (w fatbinObject) table(kind uint32, starts []int) (table []byte, relocations []elf.Rela64) {
	point := func(at, symbol, to int) {
		relocations = append(relocations, elf.Rela64{Off: uint64(at), Info: elf.R_INFO(uint32(symbol), kind), Addend: int64(to)})
	}
	names := w.kernels()
	kernel := deviceCodeSize + shardSize*len(w.shards)
	table = make([]byte, kernel+kernelSize*len(names))
	binary.LittleEndian.PutUint32(table[8:], uint32(len(w.shards)))
	binary.LittleEndian.PutUint32(table[12:], uint32(w.capability))
	point(0, tableBase, deviceCodeSize)
	at := kernel
	for i, s := range w.shards {
		shard := deviceCodeSize + shardSize*i
		point(shard, fatbinBase, starts[i])
		point(shard+8, tableBase, at)
		binary.LittleEndian.PutUint64(table[shard+16:], uint64(len(s.kernels)))
		at += kernelSize * len(s.kernels)
	}
	for i, name := range names {
		at := kernel + kernelSize*i
		point(at, firstKernel+i, 0)
		point(at+8, tableBase, len(table))
		table = append(append(table, name...), 0)
	}
	return table, relocations
}

func (w fatbinObject) symbols() ([]elf.Sym64, string) {
	section := elf.ST_INFO(elf.STB_LOCAL, elf.STT_SECTION)
	list := []elf.Sym64{{}, {Info: section, Shndx: fatbinIndex}, {Info: section, Shndx: tableIndex}, {
		Name: 1, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Other: uint8(elf.STV_HIDDEN), Shndx: tableIndex, Size: deviceCodeSize,
	}}
	strtab := "\x00" + w.symbol + "\x00"
	for _, name := range w.kernels() {
		list = append(list, elf.Sym64{Name: uint32(len(strtab)), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Other: uint8(elf.STV_HIDDEN)})
		strtab += name + "\x00"
	}
	return list, strtab
}
