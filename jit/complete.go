package jit

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/aiter-go/aiter/internal/sys"
)

// A compiler or linker that runs out of disk space may exit without an error and leave a
// truncated file. So the manager checks each file before it publishes the file: all segments,
// sections and tables that the headers name must be inside the file.

// checkLibrary returns the damage of a shared library as an error text, "" if there is none.
// machine is that of its objects ([elf.EM_NONE]: any).
func checkLibrary(path string, machine elf.Machine) string {
	return damageReason("library", path, readELF(path, func(file *elf.File) error {
		switch {
		case file.Type != elf.ET_DYN:
			return fmt.Errorf("it is of type %s, expected a shared library (%s)", file.Type, elf.ET_DYN)
		case machine != elf.EM_NONE && file.Machine != machine:
			return fmt.Errorf("it is for %s, expected %s, the machine of its objects", file.Machine, machine)
		}
		return checkDynamic(file)
	}))
}

// checkObject returns the damage of a translation unit's object, "" if there is none. The
// object must be a relocatable ELF file, for a device pass a code object, or with -flto LLVM
// bitcode.
func checkObject(path string, device bool) string {
	want := elf.ET_REL
	if device {
		want = elf.ET_DYN
	}
	err := readELF(path, func(file *elf.File) error {
		if file.Type != want {
			return fmt.Errorf("it is of type %s, expected %s", file.Type, want)
		}
		return nil
	})
	if errors.Is(err, errNoELF) && !device && isBitcode(path) {
		err = checkBitcode(path)
	}
	return damageReason("object", path, err)
}

// damageReason describes the damage of a file that a compiler made, "" if err is nil.
func damageReason(what, path string, err error) string {
	if err == nil {
		return ""
	}
	return "it exited without an error, but its " + what + " is damaged: " + err.Error() + damageAdvice(path)
}

// damageAdvice returns the probable cause of the damage of a file: a full filesystem, or a
// wrapper.
func damageAdvice(path string) string {
	return cmp.Or(fullDisk(path), "; run it again, and check whether the compiler is a wrapper that changes its output")
}

// fullDisk returns a remark if the filesystem of path is full, which compilers do not always report.
func fullDisk(path string) string {
	if hasFreeSpace(path) {
		return ""
	}
	return "; the filesystem of the cache is full: " + syscall.ENOSPC.Error()
}

// truncatedError returns the error of a report whose end is missing. path is a file in the
// same folder.
func truncatedError(path string) error {
	if !hasFreeSpace(path) {
		return fmt.Errorf("its end is missing: %w", syscall.ENOSPC)
	}
	return errors.New("its end is missing; run it again, and check whether the compiler is a wrapper that changes its output")
}

// hasFreeSpace reports whether the filesystem of path has room for a small file.
func hasFreeSpace(path string) bool {
	free, err := sys.Free(path)
	return err != nil || free > 1<<20
}

var errNoELF = errors.New("it is not an ELF file")

// readELF calls use with the 64-bit ELF file at path if the file is complete. It fails with
// errNoELF for other files.
func readELF(path string, use func(*elf.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := f.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		return fmt.Errorf("%w (%d bytes)", errNoELF, info.Size())
	}
	file, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("its headers cannot be read, perhaps because the end of the file is missing (%d bytes): %w", info.Size(), err)
	}
	if file.Class != elf.ELFCLASS64 {
		return fmt.Errorf("it is of class %s, expected %s", file.Class, elf.ELFCLASS64)
	}
	if err := checkExtent(file, uint64(info.Size())); err != nil {
		return err
	}
	return use(file)
}

// checkExtent fails if a segment or section ends after the end of the file, or if the names
// of the sections are missing. size is that of the file in bytes.
func checkExtent(file *elf.File, size uint64) error {
	for i, p := range file.Progs {
		if p.Off > size || p.Filesz > size-p.Off {
			return fmt.Errorf("segment %d (%s) ends at byte %d of a file of %d bytes", i, p.Type, p.Off+p.Filesz, size)
		}
	}
	for i, s := range file.Sections {
		switch {
		case s.Type == elf.SHT_NULL:
		case s.Type != elf.SHT_NOBITS && (s.Offset > size || s.FileSize > size-s.Offset):
			return fmt.Errorf("section %s ends at byte %d of a file of %d bytes", s.Name, s.Offset+s.FileSize, size)
		case s.Name == "":
			return fmt.Errorf("section %d has no name", i)
		}
	}
	if file.Type == elf.ET_REL && len(file.Sections) == 0 {
		return errors.New("it has no sections")
	}
	return nil
}

// checkDynamic fails if the file lacks tables that the loader needs.
func checkDynamic(file *elf.File) error {
	entries, err := dynamicEntries(file)
	if err != nil {
		return err
	}
	for _, tag := range []elf.DynTag{elf.DT_STRTAB, elf.DT_SYMTAB} {
		if _, ok := entries[tag]; !ok {
			return fmt.Errorf("its dynamic table has no %s", tag)
		}
	}
	for tag, size := range map[elf.DynTag]elf.DynTag{
		elf.DT_STRTAB: elf.DT_STRSZ, elf.DT_SYMTAB: elf.DT_SYMENT, elf.DT_RELA: elf.DT_RELASZ, elf.DT_JMPREL: elf.DT_PLTRELSZ,
		elf.DT_INIT_ARRAY: elf.DT_INIT_ARRAYSZ, elf.DT_FINI_ARRAY: elf.DT_FINI_ARRAYSZ,
		elf.DT_HASH: 0, elf.DT_GNU_HASH: 0, elf.DT_VERSYM: 0, elf.DT_VERNEED: 0,
	} {
		if at, ok := entries[tag]; ok && !inSegment(file, at, max(entries[size], 1)) {
			return fmt.Errorf("%s of its dynamic table, at address %#x, is in no segment of the file", tag, at)
		}
	}
	return nil
}

// dynamicEntries reads the dynamic table by its segment, because a library needs no sections.
func dynamicEntries(file *elf.File) (map[elf.DynTag]uint64, error) {
	for _, p := range file.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		data, err := io.ReadAll(p.Open())
		if err != nil {
			return nil, fmt.Errorf("its dynamic table: %w", err)
		}
		entries := map[elf.DynTag]uint64{}
		for ; len(data) >= 16; data = data[16:] {
			tag := elf.DynTag(file.ByteOrder.Uint64(data))
			if tag == elf.DT_NULL {
				break
			}
			entries[tag] = file.ByteOrder.Uint64(data[8:])
		}
		return entries, nil
	}
	return nil, errors.New("it has no dynamic table")
}

// inSegment reports whether a segment loads size bytes at an address from the file.
func inSegment(file *elf.File, at, size uint64) bool {
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && at >= p.Vaddr && at-p.Vaddr < p.Filesz && size <= p.Filesz-(at-p.Vaddr) {
			return true
		}
	}
	return false
}

const (
	bitcodeMagic   = "BC\xc0\xde" // the first bytes of LLVM bitcode
	bitcodeStrings = 23           // the number of its last block, the table of strings
)

func isBitcode(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, len(bitcodeMagic))
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == bitcodeMagic
}

// checkBitcode fails if a block of LLVM bitcode ends after the end of the file, or if the
// last block is not the table of strings. The top level consists of blocks: abbreviation 1 in
// 2 bits, the block's number in 8 bits, the width of its abbreviations in 4 bits, and, aligned
// to 32 bits, its length in words of 4 bytes.
func checkBitcode(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	last := -1
	for at := len(bitcodeMagic); at < len(data); {
		const head = 8 // bytes
		if at+head > len(data) || data[at]&3 != 1 {
			return fmt.Errorf("its bitcode has no block at byte %d of %d", at, len(data))
		}
		last = int(binary.LittleEndian.Uint16(data[at:])>>2) & 0xff
		at += head + 4*int(binary.LittleEndian.Uint32(data[at+4:]))
		if at > len(data) {
			return fmt.Errorf("a block of its bitcode ends at byte %d of a file of %d bytes", at, len(data))
		}
	}
	if last != bitcodeStrings {
		return fmt.Errorf("the last block of its bitcode is %d, expected %d, the table of strings", last, bitcodeStrings)
	}
	return nil
}

// machineOf returns the machine of the objects in a folder, [elf.EM_NONE] if none of them is an
// ELF file.
func machineOf(dir string, objects []string) elf.Machine {
	for _, name := range objects {
		if f, err := elf.Open(filepath.Join(dir, name)); err == nil {
			_ = f.Close()
			return f.Machine
		}
	}
	return elf.EM_NONE
}
