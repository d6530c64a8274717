package codeobject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// FilesFormat names the layout of the output of [EmbedFiles]. It must change with the layout.
const FilesFormat = "files 1"

// filesSymbol is the symbol of the files: aiter_code_objects of csrc/include/aiter/assembly.h.
const filesSymbol = "aiter_code_objects"

const (
	filesSection   = ".aiter_code_objects"
	fileAlignment  = 64 // of the content of each file
	filesEntrySize = 24
)

// NamedFile is a file that a library contains.
type NamedFile struct {
	Name string
	Data []byte
}

// EmbedFiles makes an object file with a table of files, sorted by name, for the machine of the object file host: the number of files, an
// entry for each (the offsets of its name and its content from the start of the table, and its size), the names, each
// with a final 0, and the contents. It fails with [*FormatError] if host is not an object file.
func EmbedFiles(host []byte, files []NamedFile) ([]byte, error) {
	f, err := openHost(host)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return relocatable{f.Machine, f.OSABI, filesSection, filesSymbol, filesTable(files)}.bytes(), nil
}

func filesTable(files []NamedFile) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(files)))
	b = append(b, make([]byte, filesEntrySize*len(files))...)
	entry := func(i, field, value int) {
		binary.LittleEndian.PutUint64(b[8+filesEntrySize*i+8*field:], uint64(value))
	}
	for i, f := range files {
		entry(i, 0, len(b))
		b = append(append(b, f.Name...), 0)
	}
	for i, f := range files {
		b = append(b, make([]byte, -len(b)&(fileAlignment-1))...)
		entry(i, 1, len(b))
		entry(i, 2, len(f.Data))
		b = append(b, f.Data...)
	}
	return b
}

// Files returns the files that a library contains, as [EmbedFiles] has put them into it; none if it contains no table.
func Files(library []byte) ([]NamedFile, error) {
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return nil, &FormatError{"library", err.Error()}
	}
	defer f.Close()
	s := f.Section(filesSection)
	if s == nil {
		return nil, nil
	}
	data, err := s.Data()
	if err != nil {
		return nil, &FormatError{"library", err.Error()}
	}
	return filesIn(data)
}

func filesIn(data []byte) (files []NamedFile, err error) {
	cut := &FormatError{"table of files", "it is cut off"}
	if len(data) < 8 {
		return nil, cut
	}
	n := binary.LittleEndian.Uint64(data)
	if n > uint64(len(data)-8)/filesEntrySize {
		return nil, cut
	}
	for i := range int(n) {
		field := func(k int) uint64 { return binary.LittleEndian.Uint64(data[8+filesEntrySize*i+8*k:]) }
		name, at, size := field(0), field(1), field(2)
		if name > uint64(len(data)) || at > uint64(len(data)) || size > uint64(len(data))-at {
			return nil, cut
		}
		word, _, found := bytes.Cut(data[name:], []byte{0})
		if !found {
			return nil, cut
		}
		files = append(files, NamedFile{string(word), data[at : at+size]})
	}
	return files, nil
}

// assembled returns the code objects of a table of files. A code object in assembly states no target, but has an architecture.
func assembled(data []byte) ([]Object, error) {
	files, err := filesIn(data)
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, f := range files {
		arch, err := ArchOf(f.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		objects = append(objects, Object{arch, f.Data})
	}
	return objects, nil
}
