package codeobject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

const (
	machineAMDGPU = elf.Machine(0xe0)
	flagsOffset   = 48 // of e_flags in the header of an ELF file of 64 bits
)

// machines returns the architectures by the low byte of e_flags, EF_AMDGPU_MACH of LLVM.
func machines() map[byte]string {
	return map[byte]string{
		0x2c: "gfx900", 0x2d: "gfx902", 0x2e: "gfx904", 0x2f: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c", 0x3f: "gfx90a",
		0x4c: "gfx942", 0x4f: "gfx950", 0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012", 0x36: "gfx1030", 0x37: "gfx1031",
		0x38: "gfx1032", 0x39: "gfx1033", 0x3e: "gfx1034", 0x3d: "gfx1035", 0x45: "gfx1036", 0x41: "gfx1100", 0x46: "gfx1101",
		0x47: "gfx1102", 0x44: "gfx1103", 0x43: "gfx1150", 0x4a: "gfx1151", 0x55: "gfx1152", 0x58: "gfx1153", 0x48: "gfx1200",
		0x4e: "gfx1201", 0x49: "gfx1250",
	}
}

// ArchOf returns the architecture in the header of a code object of AMD, which code objects without metadata have too; "" for
// one that this program does not know. It fails with [*FormatError] for other data.
func ArchOf(code []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return "", &FormatError{"code object", err.Error()}
	}
	defer f.Close()
	if f.Machine != machineAMDGPU || f.Class != elf.ELFCLASS64 || !slices.Contains([]elf.Type{elf.ET_DYN, elf.ET_EXEC}, f.Type) {
		return "", &FormatError{"code object", fmt.Sprintf("expected an ELF file of 64 bits for a GPU of AMD (machine %d), got %v, %v, %v",
			machineAMDGPU, f.Class, f.Machine, f.Type)}
	}
	return machines()[byte(binary.LittleEndian.Uint32(code[flagsOffset:]))], nil
}
