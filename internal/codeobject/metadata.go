package codeobject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// Kernel is the metadata of one kernel. For a GPU of NVIDIA, VGPRs is the registers of a thread, LDS shared memory and Scratch
// local memory, with spills; the other registers and spills are 0.
type Kernel struct {
	Symbol     string // mangled
	Name       string // as in C++, without parameters
	VGPRs      int    // vector registers a lane, with accumulation registers on GPUs with a unified register file
	AGPRs      int    // accumulation registers
	SGPRs      int    // scalar registers
	VGPRSpills int    // vector registers written to scratch memory
	SGPRSpills int    // scalar registers written to vector registers or scratch
	LDS        int    // bytes of local data share a workgroup, as declared
	Scratch    int    // bytes of private memory a lane
	Kernarg    int    // bytes of arguments
	Wave       int    // lanes of a wave
	MaxThreads int    // of a workgroup
	CodeSize   int    // bytes
}

const (
	metadataOwner = "AMDGPU"
	metadataType  = 32 // NT_AMDGPU_METADATA
	maxNotes      = 16 << 20
)

// metadata is the part of the document that is used; the key names are LLVM's ("Code Object V3 Metadata").
type metadata struct {
	Target  string `msgpack:"amdhsa.target"` // "amdgcn-amd-amdhsa--gfx90a:xnack-"
	Kernels []struct {
		Name       string `msgpack:".name"`
		Symbol     string `msgpack:".symbol"`
		VGPRs      int    `msgpack:".vgpr_count"`
		AGPRs      int    `msgpack:".agpr_count"`
		SGPRs      int    `msgpack:".sgpr_count"`
		VGPRSpills int    `msgpack:".vgpr_spill_count"`
		SGPRSpills int    `msgpack:".sgpr_spill_count"`
		LDS        int    `msgpack:".group_segment_fixed_size"`
		Scratch    int    `msgpack:".private_segment_fixed_size"`
		Kernarg    int    `msgpack:".kernarg_segment_size"`
		Wave       int    `msgpack:".wavefront_size"`
		MaxThreads int    `msgpack:".max_flat_workgroup_size"`
	} `msgpack:"amdhsa.kernels"`
}

// Kernels reads the metadata of a code object or a cubin. It fails with [*FormatError] and the errors of debug/elf.
func (o Object) Kernels() ([]Kernel, error) {
	if IsCUDA(o.Target) {
		return cubinKernels(o)
	}
	file, err := elf.NewFile(bytes.NewReader(o.ELF))
	if err != nil {
		return nil, fmt.Errorf("code object for %s: %w", o.Target, err)
	}
	defer file.Close()
	doc, err := readMetadata(file)
	if err != nil {
		return nil, err
	}
	sizes := symbolSizes(file)
	var list []Kernel
	for _, k := range doc.Kernels {
		list = append(list, Kernel{
			Symbol: k.Name, Name: demangleName(k.Name), VGPRs: k.VGPRs, AGPRs: k.AGPRs, SGPRs: k.SGPRs,
			VGPRSpills: k.VGPRSpills, SGPRSpills: k.SGPRSpills, LDS: k.LDS, Scratch: k.Scratch, Kernarg: k.Kernarg,
			Wave: k.Wave, MaxThreads: k.MaxThreads, CodeSize: sizes[k.Name],
		})
	}
	return list, nil
}

// TargetOf returns the target in the metadata of a code object, such as "gfx942" or "gfx90a:xnack-". The target omits
// features that the processor lacks, and features whose setting does not matter to the code. A code object without
// kernels has a target too. TargetOf fails with [*FormatError] and the errors of debug/elf.
func TargetOf(code io.ReaderAt) (string, error) {
	file, err := elf.NewFile(code)
	if err != nil {
		return "", err
	}
	defer file.Close()
	doc, err := readMetadata(file)
	if err != nil {
		return "", err
	}
	_, name, ok := strings.Cut(doc.Target, "--")
	if !ok || name == "" {
		return "", &FormatError{"metadata", fmt.Sprintf("amdhsa.target is %q, expected a name like \"amdgcn-amd-amdhsa--gfx942\"", doc.Target)}
	}
	return name, nil
}

func readMetadata(file *elf.File) (doc metadata, err error) {
	note, err := findNote(file)
	if err != nil {
		return doc, err
	}
	if err := msgpack.Unmarshal(note, &doc); err != nil {
		return doc, &FormatError{"metadata", err.Error()}
	}
	return doc, nil
}

// findNote returns the metadata, a MessagePack document in a note segment.
func findNote(file *elf.File) ([]byte, error) {
	for _, p := range file.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		if p.Filesz > maxNotes {
			return nil, &FormatError{"notes", fmt.Sprintf("%d bytes, expected at most %d", p.Filesz, maxNotes)}
		}
		data, err := io.ReadAll(p.Open())
		if err != nil {
			return nil, fmt.Errorf("notes: %w", err)
		}
		if note := noteIn(data); note != nil {
			return note, nil
		}
	}
	return nil, &FormatError{"metadata", "the code object has no metadata"}
}

// noteIn returns the metadata among notes, nil if it is not there. A note consists of the sizes of name and content, the
// type, the name and the content, each padded to 4 bytes.
func noteIn(data []byte) []byte {
	for len(data) >= 12 {
		nameSize, size := uint64(binary.LittleEndian.Uint32(data)), uint64(binary.LittleEndian.Uint32(data[4:]))
		kind := binary.LittleEndian.Uint32(data[8:])
		data = data[12:]
		start := (nameSize + 3) &^ 3
		if start+size > uint64(len(data)) {
			return nil
		}
		if name := bytes.TrimRight(data[:nameSize], "\x00"); kind == metadataType && string(name) == metadataOwner {
			return data[start : start+size]
		}
		data = data[min((start+size+3)&^3, uint64(len(data))):]
	}
	return nil
}

func symbolSizes(file *elf.File) map[string]int {
	sizes := map[string]int{}
	symbols, _ := file.Symbols() // a stripped file has none; the sizes are then unknown
	dynamic, _ := file.DynamicSymbols()
	for _, s := range append(symbols, dynamic...) {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			sizes[s.Name] = int(s.Size)
		}
	}
	return sizes
}
