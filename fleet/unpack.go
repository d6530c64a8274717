package fleet

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
)

// unpack writes the files of a layer below a folder. It accepts the names that a prebuilt cache has, each once, as regular
// files, and the folders above them. The caller has compared the digest of packed with the layer's. size is the number of bytes of the
// tar file. The error is a *DamageError for a layer of another form.
func unpack(packed io.Reader, size int64, to *os.Root) error {
	in := bufio.NewReader(packed)
	zip, err := gzip.NewReader(in)
	if err != nil {
		return damaged("the layer is not packed with gzip: %w", err)
	}
	zip.Multistream(false)
	u := unpacking{to: to, left: size}
	limited := &io.LimitedReader{R: zip, N: size + 1}
	archive := tar.NewReader(limited)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil && limited.N == 0 {
			return damaged("the layer has more than %d bytes unpacked", size)
		}
		if err != nil {
			return damaged("the layer is not a tar file: %w", err)
		}
		if err := u.entry(h, archive); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, limited); err != nil { // the padding of the tar file, and the checksum of gzip
		return damaged("the layer is damaged: %w", err)
	}
	if limited.N != 1 {
		return damaged("the layer has %d bytes unpacked, expected %d", size+1-limited.N, size)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return damaged("the layer has bytes after its end")
	}
	return nil
}

// unpacking is the state of unpack.
type unpacking struct {
	to   *os.Root
	left int64 // bytes that files may still have
}

// isSparse reports whether a file has holes, which take no bytes in the layer.
func isSparse(h *tar.Header) bool {
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (u *unpacking) entry(h *tar.Header, data io.Reader) error {
	name := h.Name
	switch {
	case h.Typeflag == tar.TypeDir && cache.IsEntryFolder(strings.TrimSuffix(name, "/")):
		return nil // made with its first file
	case h.Typeflag != tar.TypeReg:
		return damaged("the layer has %q of type %q, expected regular files", name, h.Typeflag)
	case isSparse(h):
		return damaged("the layer has a sparse file %q", name)
	case !cache.IsEntry(name):
		return damaged("the layer has a file %q, expected those of artifacts and records", name)
	case h.Size < 0 || h.Size > u.left:
		return damaged("the layer has a file %q of %d bytes, expected at most %d", name, h.Size, u.left)
	}
	u.left -= h.Size
	if err := u.to.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := u.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return damaged("the set has %q twice", name)
	}
	if err != nil {
		return err
	}
	n, err := io.Copy(f, &io.LimitedReader{R: data, N: h.Size})
	if closed := f.Close(); closed != nil {
		return closed
	}
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	var system *fs.PathError
	if errors.As(err, &system) {
		return err
	}
	if err != nil {
		return damaged("the layer ends in the file %q: %w", name, err)
	}
	return nil
}
