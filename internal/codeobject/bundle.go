// Package codeobject reads and writes the GPU code in a module's shared library: the code objects of its units, the
// metadata of each kernel, and the instructions of its hottest loop.
package codeobject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Object is the code of one translation unit for one target.
type Object struct {
	Target string // as the compiler wrote it: "gfx942", "gfx90a:xnack-", "sm_90a"
	ELF    []byte
}

// FormatError reports data that does not have the expected format.
type FormatError struct {
	What string // "offload bundle 2", "metadata"
	Why  string
}

func (e *FormatError) Error() string { return e.What + ": " + e.Why }

// ErrNoCode is returned for a library without GPU code: one for the host.
var ErrNoCode = errors.New("the library holds no GPU code (no section " + bundleSection + ", " + fatbinSection + " or " + filesSection +
	")")

const (
	bundleSection = ".hip_fatbin"
	bundleMagic   = "__CLANG_OFFLOAD_BUNDLE__"
	packedMagic   = "CCOB" // of a compressed bundle
	maxEntries    = 256    // of a bundle
	maxName       = 4096   // of an entry's name, in bytes
)

// Extract returns the code objects for AMD or NVIDIA in a shared library, in the order of the link. It fails with
// [ErrNoCode], [*FormatError] and the errors of debug/elf.
func Extract(library io.ReaderAt) ([]Object, error) {
	file, err := elf.NewFile(library)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []Object
	found := false
	for _, x := range []struct {
		section string
		read    func([]byte) ([]Object, error)
	}{{bundleSection, Unbundle}, {fatbinSection, fatbins}, {filesSection, assembled}} {
		section := file.Section(x.section)
		if section == nil {
			continue
		}
		found = true
		data, err := section.Data()
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", x.section, err)
		}
		objects, err := x.read(data)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	if !found {
		return nil, ErrNoCode
	}
	return all, nil
}

// Unbundle splits the bytes of the section: bundles one after another, with padding between them. Each bundle has a table
// of its entries, for the host and the targets, with offsets from the start of the bundle. It fails with [*FormatError].
func Unbundle(data []byte) ([]Object, error) {
	var all []Object
	for n := 1; ; n++ {
		data = bytes.TrimLeft(data, "\x00")
		if len(data) == 0 {
			return all, nil
		}
		objects, size, err := bundle(data)
		if err != nil {
			return nil, &FormatError{fmt.Sprintf("offload bundle %d", n), err.Error()}
		}
		all = append(all, objects...)
		data = data[size:]
	}
}

// bundle reads the bundle at the start of data and returns its size.
func bundle(data []byte) (objects []Object, size uint64, err error) {
	if bytes.HasPrefix(data, []byte(packedMagic)) {
		return nil, 0, errors.New("it is compressed; build without --offload-compress to inspect it")
	}
	rest, ok := bytes.CutPrefix(data, []byte(bundleMagic))
	if !ok || len(rest) < 8 {
		return nil, 0, fmt.Errorf("expected %q and a number of entries", bundleMagic)
	}
	count := binary.LittleEndian.Uint64(rest)
	if count > maxEntries {
		return nil, 0, fmt.Errorf("%d entries, expected at most %d", count, maxEntries)
	}
	rest = rest[8:]
	for range count {
		var e entry
		if e, rest, err = nextEntry(rest); err != nil {
			return nil, 0, err
		}
		if e.offset > uint64(len(data)) || e.size > uint64(len(data))-e.offset {
			return nil, 0, fmt.Errorf("entry %q ends after the end of the section", e.name)
		}
		size = max(size, e.offset+e.size)
		if target, ok := e.target(); ok && e.size > 0 {
			objects = append(objects, Object{target, data[e.offset : e.offset+e.size]})
		}
	}
	return objects, max(size, uint64(len(data)-len(rest))), nil
}

// entry is a line of a bundle's table.
type entry struct {
	offset, size uint64
	name         string
}

// nextEntry reads the entry at the start of data, and returns the rest.
func nextEntry(data []byte) (e entry, rest []byte, err error) {
	const head = 24
	if len(data) < head {
		return e, nil, errors.New("its table of entries is cut off")
	}
	e.offset, e.size = binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
	length := binary.LittleEndian.Uint64(data[16:])
	data = data[head:]
	if length > maxName || length > uint64(len(data)) {
		return e, nil, errors.New("the name of an entry is cut off")
	}
	e.name = string(data[:length])
	return e, data[length:], nil
}

// target returns gfx942 of "hipv4-amdgcn-amd-amdhsa--gfx942". The kind and the triple before it have four dashes.
func (e entry) target() (string, bool) {
	if strings.HasPrefix(e.name, "host") {
		return "", false
	}
	i := strings.Index(e.name, "-gfx")
	if i < 0 {
		return "", false
	}
	return e.name[i+1:], true
}
