package depfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A thin archive holds a symbol table and the paths of its members. Linkers read the members from those paths, and
// name the archive alone in their dependency files. The form, after the first line:
//
//	header of 60 bytes: name[16] time[12] user[6] group[6] mode[8] size[10] "`\n"
//	data, padded to an even size, of the symbol tables ("/", "/SYM64/") and the table of names ("//") only
//
// The name of a member is "x.o/", or "/N": the name at byte N of the table of names, up to "/\n". "/N:M" is the member
// at byte M of another archive, which is named at byte N.

const (
	thinMagic  = "!<thin>\n"
	headerSize = 60
	maxNames   = 64 << 20 // bytes of a table of names
)

// ThinMembers returns the paths of a thin archive's members, each once: absolute, or relative to the folder of the
// archive. It returns none for any other file. The error is a [*SyntaxError] or that of reading.
func ThinMembers(r io.ReaderAt) ([]string, error) {
	magic := make([]byte, len(thinMagic))
	if _, err := r.ReadAt(magic, 0); errors.Is(err, io.EOF) || err == nil && string(magic) != thinMagic {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	a := thinArchive{file: r}
	var members []string
	for at := int64(len(thinMagic)); ; {
		h, err := a.header(at)
		if err == io.EOF {
			return unique(members), nil
		}
		if err != nil {
			return nil, err
		}
		if at, err = a.take(h, at+headerSize, &members); err != nil {
			return nil, err
		}
	}
}

type thinArchive struct {
	file  io.ReaderAt
	names []byte // the table of names
}

// thinHeader is what matters of a header.
type thinHeader struct {
	name string
	size int64
}

// header reads the header at an offset; the error is io.EOF at the end of the archive.
func (a *thinArchive) header(at int64) (thinHeader, error) {
	b := make([]byte, headerSize)
	n, err := a.file.ReadAt(b, at)
	switch {
	case n == 0 && err == io.EOF:
		return thinHeader{}, io.EOF
	case n < headerSize && err == io.EOF:
		return thinHeader{}, &SyntaxError{int(at), "a thin archive ends within a header"}
	case n < headerSize:
		return thinHeader{}, err
	case string(b[58:]) != "`\n":
		return thinHeader{}, &SyntaxError{int(at), "a thin archive has no header"}
	}
	size, err := strconv.ParseInt(strings.TrimRight(string(b[48:58]), " "), 10, 64)
	if err != nil || size < 0 {
		return thinHeader{}, &SyntaxError{int(at), fmt.Sprintf("a thin archive has a member of size %q", b[48:58])}
	}
	return thinHeader{strings.TrimRight(string(b[:16]), " "), size}, nil
}

// take takes what a header describes, and returns the offset of the next header. The data of a member is elsewhere.
func (a *thinArchive) take(h thinHeader, data int64, members *[]string) (next int64, err error) {
	behind := data + h.size + h.size%2
	switch h.name {
	case "/", "/SYM64/":
		return behind, nil
	case "//":
		a.names, err = a.table(data, h.size)
		return behind, err
	}
	name, err := a.name(h.name, data)
	*members = append(*members, name)
	return data, err
}

func (a *thinArchive) table(at, size int64) ([]byte, error) {
	if size > maxNames {
		return nil, &SyntaxError{int(at), fmt.Sprintf("a thin archive has %d bytes of names; at most %d are read", size, maxNames)}
	}
	table := make([]byte, size)
	if n, err := a.file.ReadAt(table, at); n < len(table) {
		return nil, errors.Join(&SyntaxError{int(at), "a thin archive ends within its names"}, err)
	}
	return table, nil
}

// name returns the path of a member by the name in its header.
func (a *thinArchive) name(short string, at int64) (string, error) {
	long, isLong := strings.CutPrefix(short, "/")
	if !isLong {
		if name := strings.TrimSuffix(short, "/"); name != "" && name != short && !strings.ContainsAny(name, "\n\x00") {
			return name, nil
		}
		return "", &SyntaxError{int(at), fmt.Sprintf("a thin archive has a member %q", short)}
	}
	number, _, _ := strings.Cut(long, ":")
	offset, err := strconv.Atoi(number)
	if err != nil || offset < 0 || offset >= len(a.names) {
		return "", &SyntaxError{int(at), fmt.Sprintf("a thin archive has a member %q, and %d bytes of names", short, len(a.names))}
	}
	name, _, ended := bytes.Cut(a.names[offset:], []byte("\n"))
	name = bytes.TrimSuffix(name, []byte("/"))
	if !ended || len(name) == 0 || bytes.IndexByte(name, 0) >= 0 {
		return "", &SyntaxError{int(at), fmt.Sprintf("a thin archive has no name at byte %d of its names", offset)}
	}
	return string(name), nil
}
