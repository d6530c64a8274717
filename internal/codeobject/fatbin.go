package codeobject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// A fatbin is a header and entries, one for each target and kind of code. A library has one for each unit, one after
// another. The layout is not documented; it is that of nvcc 12.4.
const (
	fatbinSection = ".nv_fatbin"
	fatbinMagic   = 0xba55ed50
	fatbinHeader  = 16
	fatbinELF     = 2 // the kind of an entry with machine code; 1 is PTX
	fatbinEntry   = 64
	packedLZ4     = 1 << 13 // flags of an entry
	packedZstd    = 1 << 15
	maxCode       = 1 << 30 // bytes of one entry, decompressed
)

// fatbins returns the machine code in the bytes of the section.
func fatbins(data []byte) ([]Object, error) {
	var all []Object
	for n := 1; ; n++ {
		data = bytes.TrimLeft(data, "\x00")
		if len(data) == 0 {
			return all, nil
		}
		objects, size, err := fatbin(data)
		if err != nil {
			return nil, &FormatError{fmt.Sprintf("fatbin %d", n), err.Error()}
		}
		all = append(all, objects...)
		data = data[size:]
	}
}

// Fatbin returns the machine code in the output of `nvcc -fatbin` for one target. It fails with [*FormatError].
func Fatbin(data []byte) (Object, error) {
	objects, err := fatbins(data)
	if err == nil && len(objects) != 1 {
		err = &FormatError{"fatbin", fmt.Sprintf("it has the code of %d targets, expected 1", len(objects))}
	}
	if err != nil {
		return Object{}, err
	}
	return objects[0], nil
}

// fatbin reads the fatbin at the start of data and returns its size.
func fatbin(data []byte) (objects []Object, size uint64, err error) {
	if len(data) < fatbinHeader || binary.LittleEndian.Uint32(data) != fatbinMagic {
		return nil, 0, fmt.Errorf("expected the number %#x", uint32(fatbinMagic))
	}
	size = uint64(binary.LittleEndian.Uint16(data[6:]))
	length := binary.LittleEndian.Uint64(data[8:])
	if size < fatbinHeader || size > uint64(len(data)) || length > uint64(len(data))-size {
		return nil, 0, errors.New("it ends after the end of the section")
	}
	rest := data[size : size+length]
	for len(rest) > 0 {
		object, used, err := fatbinCode(rest)
		if err != nil {
			return nil, 0, err
		}
		if object.ELF != nil {
			objects = append(objects, object)
		}
		rest = rest[used:]
	}
	return objects, size + length, nil
}

// fatbinCode reads the entry at the start of data and returns its size. An entry of another kind has no ELF.
func fatbinCode(data []byte) (object Object, used uint64, err error) {
	if len(data) < fatbinEntry {
		return object, 0, errors.New("an entry is cut off")
	}
	head, size := uint64(binary.LittleEndian.Uint32(data[4:])), binary.LittleEndian.Uint64(data[8:])
	if head < fatbinEntry || head > uint64(len(data)) || size > uint64(len(data))-head {
		return object, 0, errors.New("an entry ends after the end of the fatbin")
	}
	if binary.LittleEndian.Uint16(data) != fatbinELF {
		return object, head + size, nil
	}
	code := data[head : head+size]
	switch flags := binary.LittleEndian.Uint64(data[40:]); {
	case flags&packedZstd != 0:
		return object, 0, errors.New("it is compressed with zstd; build with nvcc's flag --no-compress to inspect it")
	case flags&packedLZ4 != 0:
		packed, whole := uint64(binary.LittleEndian.Uint32(data[16:])), binary.LittleEndian.Uint64(data[56:])
		if packed > size || whole > min(255*packed, maxCode) { // a byte stands for at most 255
			return object, 0, errors.New("a compressed entry has impossible sizes")
		}
		if code, err = unpackLZ4(code[:packed], int(whole)); err != nil {
			return object, 0, err
		}
	}
	object.ELF = code
	object.Target, err = cubinTarget(code)
	return object, head + size, err
}

// unpackLZ4 decompresses an LZ4 block of a known size.
func unpackLZ4(data []byte, size int) ([]byte, error) {
	cut := errors.New("the compressed code is damaged")
	out := make([]byte, 0, size)
	number := func(n int) (int, bool) { // a length of 15 continues with bytes up to one that is not 255
		for more := n == 15; more; {
			if len(data) == 0 {
				return 0, false
			}
			n, more, data = n+int(data[0]), data[0] == 255, data[1:]
		}
		return n, true
	}
	for len(data) > 0 {
		token := data[0]
		data = data[1:]
		literals, ok := number(int(token >> 4))
		if !ok || literals > len(data) || len(out)+literals > size {
			return nil, cut
		}
		out, data = append(out, data[:literals]...), data[literals:]
		if len(data) == 0 {
			break // the last sequence has no match
		}
		if len(data) < 2 {
			return nil, cut
		}
		back := int(binary.LittleEndian.Uint16(data))
		data = data[2:]
		match, ok := number(int(token & 15))
		match += 4
		if !ok || back == 0 || back > len(out) || len(out)+match > size {
			return nil, cut
		}
		for range match { // it may overlap what it writes
			out = append(out, out[len(out)-back])
		}
	}
	if len(out) != size {
		return nil, cut
	}
	return out, nil
}
