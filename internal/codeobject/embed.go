package codeobject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"
)

// Format names the layout of the output of [Bundle] and [Embed]. It must change with the layout.
const Format = "bundle 1"

const (
	pageSize     = 4096 // HIP's runtime maps code objects, so that bundle and entries start on pages
	hostEntry    = "host-x86_64-unknown-linux-gnu-"
	deviceEntry  = "hipv4-amdgcn-amd-amdhsa--"
	fatbinPrefix = "__hip_fatbin" // each unit has its own symbol: "__hip_fatbin_75b56d30b9f662eb"
	registration = "__hipRegisterFatBinary"
)

// Bundle is the inverse of [Unbundle]: it makes the container in which HIP's runtime searches the code for its GPU. The
// result is identical to that of clang-offload-bundler: an empty entry for the host, then the entry of the object.
func Bundle(o Object) []byte {
	names := []string{hostEntry, deviceEntry + o.Target}
	sizes := []int{0, len(o.ELF)}
	var b bytes.Buffer
	b.WriteString(bundleMagic)
	word := func(n int) { _ = binary.Write(&b, binary.LittleEndian, uint64(n)) } // a Buffer never fails
	word(len(names))
	for i, name := range names {
		word(pageSize) // the offset of both entries: the first is empty
		word(sizes[i])
		word(len(name))
		b.WriteString(name)
	}
	b.Write(make([]byte, pageSize-b.Len()))
	b.Write(o.ELF)
	return b.Bytes()
}

// openHost opens an object file that device code or files are linked to. It fails with [*FormatError] for other files.
func openHost(host []byte) (*elf.File, error) {
	f, err := elf.NewFile(bytes.NewReader(host))
	if err != nil {
		return nil, &FormatError{"host object", err.Error()}
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Type != elf.ET_REL {
		_ = f.Close() // only read
		return nil, &FormatError{"host object",
			fmt.Sprintf("expected a relocatable, little-endian ELF of 64 bits, got %v, %v, %v", f.Type, f.Data, f.Class)}
	}
	return f, nil
}

// Embed makes an object file with device code. host is the object of a unit that was compiled without device code; the
// two are linked together. The object file has a section .hip_fatbin with the bundle, under the symbol that the
// registration in host refers to. For a unit without kernels, which refers to no such symbol, it is empty. Embed fails
// with [*FormatError] if host is not such an object.
func Embed(host []byte, o Object) ([]byte, error) {
	f, err := openHost(host)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	name, err := fatbinSymbol(f)
	if err != nil {
		return nil, err
	}
	w := relocatable{machine: f.Machine, osabi: f.OSABI, section: bundleSection}
	if name != "" {
		w.symbol, w.data = name, Bundle(o)
	}
	return w.bytes(), nil
}

// fatbinSymbol returns the undefined symbol by which an object refers to its device code, "" for an object without kernels.
func fatbinSymbol(f *elf.File) (string, error) {
	symbols, err := f.Symbols()
	if err != nil {
		return "", &FormatError{"host object", err.Error()}
	}
	name, registers := "", false
	for _, s := range symbols {
		switch {
		case s.Section != elf.SHN_UNDEF:
		case s.Name == registration:
			registers = true
		case strings.HasPrefix(s.Name, fatbinPrefix) && name != "":
			return "", &FormatError{"host object", "it refers to device code twice, as " + name + " and " + s.Name}
		case strings.HasPrefix(s.Name, fatbinPrefix):
			name = s.Name
		}
	}
	if registers && name == "" && f.Section(bundleSection) == nil {
		return "", nil // it registers code that it finds itself, as AIter's loader of assembly code objects
	}
	if registers != (name != "") {
		return "", &FormatError{"host object",
			fmt.Sprintf("its registration (%s: %t) and its symbol of device code (%q) do not match; was it compiled with --cuda-host-only?",
				registration, registers, name)}
	}
	return name, nil
}

// relocatable is an ELF object with one page-aligned section of read-only data and one hidden symbol for it. Without a
// symbol it has neither.
type relocatable struct {
	machine elf.Machine
	osabi   elf.OSABI
	section string
	symbol  string
	data    []byte
}

const (
	headerSize  = 64
	sectionSize = 64
	symbolSize  = 24
)

func (w relocatable) bytes() []byte {
	strtab := "\x00" + w.symbol + "\x00"
	symbols := make([]elf.Sym64, 1, 2)
	if w.symbol != "" {
		symbols = append(symbols, elf.Sym64{
			Name: 1, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Other: uint8(elf.STV_HIDDEN), Shndx: 1, Size: uint64(len(w.data)),
		})
	}
	names, at := sectionNames(w.section, ".note.GNU-stack", ".symtab", ".strtab", ".shstrtab")
	b := image{}
	b.section(elf.Section64{})
	b.put(w.data, elf.Section64{Name: at[0], Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC), Addralign: pageSize})
	b.put(nil, elf.Section64{Name: at[1], Type: uint32(elf.SHT_PROGBITS), Addralign: 1}) // keeps the stack non-executable
	b.put(encode(symbols), elf.Section64{Name: at[2], Type: uint32(elf.SHT_SYMTAB), Link: 4, Info: 1, Addralign: 8, Entsize: symbolSize})
	b.put([]byte(strtab), elf.Section64{Name: at[3], Type: uint32(elf.SHT_STRTAB), Addralign: 1})
	b.put([]byte(names), elf.Section64{Name: at[4], Type: uint32(elf.SHT_STRTAB), Addralign: 1})
	return b.finish(w)
}

// sectionNames returns a table of strings and the offset of each of them.
func sectionNames(names ...string) (table string, at []uint32) {
	table = "\x00"
	for _, n := range names {
		at = append(at, uint32(len(table)))
		table += n + "\x00"
	}
	return table, at
}

// image is an incomplete ELF file: the contents after the header, and the table of sections.
type image struct {
	body     []byte // the file from byte headerSize on
	sections []elf.Section64
}

func (b *image) section(s elf.Section64) { b.sections = append(b.sections, s) }

// put appends contents and their section.
func (b *image) put(data []byte, s elf.Section64) {
	b.align(s.Addralign)
	s.Off, s.Size = uint64(headerSize+len(b.body)), uint64(len(data))
	b.body = append(b.body, data...)
	b.section(s)
}

func (b *image) align(to uint64) {
	for (headerSize+uint64(len(b.body)))%to != 0 {
		b.body = append(b.body, 0)
	}
}

func (b *image) finish(w relocatable) []byte {
	b.align(8)
	h := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(w.machine), Version: uint32(elf.EV_CURRENT), Shoff: uint64(headerSize + len(b.body)),
		Ehsize: headerSize, Shentsize: sectionSize, Shnum: uint16(len(b.sections)), Shstrndx: uint16(len(b.sections) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	h.Ident[elf.EI_VERSION], h.Ident[elf.EI_OSABI] = byte(elf.EV_CURRENT), byte(w.osabi)
	return append(append(encode(h), b.body...), encode(b.sections)...)
}

func encode(v any) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, v) // values of fixed size into a Buffer
	return b.Bytes()
}
