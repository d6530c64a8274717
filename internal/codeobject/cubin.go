package codeobject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Attributes in the sections .nv.info of a cubin, with the names that cuobjdump gives them.
const (
	attrMaxThreads = 0x05 // EIATTR_MAX_THREADS: three dimensions
	attrFrame      = 0x11 // EIATTR_FRAME_SIZE: symbol, bytes of local memory
	attrParams     = 0x19 // EIATTR_CBANK_PARAM_SIZE: bytes of arguments
	attrStack      = 0x23 // EIATTR_MAX_STACK_SIZE: symbol, bytes of local memory with those of called functions
	attrRegisters  = 0x2f // EIATTR_REGCOUNT: symbol, registers of a thread
)

// openCubin opens machine code of NVIDIA. Its ELF version is not 1, which debug/elf refuses.
func openCubin(code []byte) (*elf.File, uint32, error) {
	const version, flags, header = 20, 48, 64
	if len(code) < header || elf.Class(code[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return nil, 0, &FormatError{"cubin", "expected a 64-bit ELF file"}
	}
	plain := slices.Clone(code)
	binary.LittleEndian.PutUint32(plain[version:], uint32(elf.EV_CURRENT))
	file, err := elf.NewFile(bytes.NewReader(plain))
	if err != nil {
		return nil, 0, &FormatError{"cubin", err.Error()}
	}
	if file.Machine != elf.EM_CUDA {
		return nil, 0, &FormatError{"cubin", fmt.Sprintf("it is for %s", file.Machine)}
	}
	return file, binary.LittleEndian.Uint32(code[flags:]), nil
}

// cubinTarget returns the target of machine code: "sm_90", "sm_90a".
func cubinTarget(code []byte) (string, error) {
	file, flags, err := openCubin(code)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sm, special, suffix := flags&0xff, flags&0x800, ""
	if file.ABIVersion >= 8 { // a later layout, for which there is no sample file
		sm, special = flags>>8&0xff, flags&8
	}
	if special != 0 {
		suffix = "a"
	}
	return fmt.Sprintf("sm_%d%s", sm, suffix), nil
}

// cubinKernels reads the resources of the kernels of a cubin. A cubin has no number of spills: spilled registers are in local
// memory.
func cubinKernels(o Object) ([]Kernel, error) {
	file, _, err := openCubin(o.ELF)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		return nil, &FormatError{"cubin", err.Error()}
	}
	var list []Kernel
	byName := map[string]int{}
	for _, s := range file.Sections {
		if name, ok := strings.CutPrefix(s.Name, ".text."); ok {
			byName[name] = len(list)
			list = append(list, Kernel{Symbol: name, Name: demangleName(name), Wave: 32, CodeSize: int(s.Size)})
		}
	}
	isKernel := map[string]bool{} // other functions have no information of their own
	for _, s := range file.Sections {
		if name, ok := strings.CutPrefix(s.Name, ".nv.shared."); ok {
			if i, ok := byName[name]; ok {
				list[i].LDS = int(s.Size)
			}
		}
		name, own := strings.CutPrefix(s.Name, ".nv.info.")
		if !own && s.Name != ".nv.info" {
			continue
		}
		isKernel[name] = own
		data, err := s.Data()
		if err != nil {
			return nil, &FormatError{"cubin", err.Error()}
		}
		eachAttribute(data, func(attribute byte, value []byte) {
			if !own {
				if len(value) < 8 {
					return
				}
				symbol := int(binary.LittleEndian.Uint32(value)) - 1 // debug/elf leaves out the first
				if symbol < 0 || symbol >= len(symbols) {
					return
				}
				name, value = symbols[symbol].Name, value[4:]
			}
			if i, ok := byName[name]; ok {
				list[i].setAttribute(attribute, value)
			}
		})
	}
	return slices.DeleteFunc(list, func(k Kernel) bool { return !isKernel[k.Symbol] }), nil
}

// cubinText returns the machine code of a kernel.
func cubinText(o Object, symbol string) ([]byte, error) {
	file, _, err := openCubin(o.ELF)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	section := file.Section(".text." + symbol)
	if section == nil {
		return nil, &FormatError{"cubin", "it has no code of " + demangleName(symbol)}
	}
	return section.Data()
}

func (k *Kernel) setAttribute(attribute byte, value []byte) {
	word := func(i int) int {
		if len(value) < 4*i+4 {
			return 0
		}
		return int(binary.LittleEndian.Uint32(value[4*i:]))
	}
	switch attribute {
	case attrRegisters:
		k.VGPRs = word(0)
	case attrFrame, attrStack:
		k.Scratch = max(k.Scratch, word(0))
	case attrMaxThreads:
		k.MaxThreads = word(0) * max(1, word(1)) * max(1, word(2))
	case attrParams:
		k.Kernarg = int(binary.LittleEndian.Uint16(value))
	}
}

// eachAttribute calls do for each attribute: a byte for the place of the value, a byte for the attribute, and two bytes
// that are the value or its size.
func eachAttribute(data []byte, do func(attribute byte, value []byte)) {
	const sized = 4
	for len(data) >= 4 {
		form, attribute, value := data[0], data[1], data[2:4]
		data = data[4:]
		if form == sized {
			n := int(binary.LittleEndian.Uint16(value))
			if n > len(data) {
				return
			}
			value, data = data[:n], data[n:]
		}
		do(attribute, value)
	}
}
