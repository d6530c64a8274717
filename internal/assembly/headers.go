package assembly

import (
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
)

// Headers is a folder of texts by name.
type Headers map[string]string

var _ fs.ReadDirFS = Headers(nil)

// Open implements [fs.FS].
func (h Headers) Open(name string) (fs.File, error) {
	if name == "." {
		entries, _ := h.ReadDir(name) // the folder exists
		return &folder{header: header{name: name}, entries: entries}, nil
	}
	text, ok := h[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &header{name, int64(len(text)), strings.NewReader(text)}, nil
}

// ReadDir implements [fs.ReadDirFS].
func (h Headers) ReadDir(name string) ([]fs.DirEntry, error) {
	if name != "." {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	var entries []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(h)) {
		entries = append(entries, fs.FileInfoToDirEntry(&header{name: name, size: int64(len(h[name]))}))
	}
	return entries, nil
}

// header is an open text, and its [fs.FileInfo].
type header struct {
	name string
	size int64
	text *strings.Reader
}

func (f *header) Stat() (fs.FileInfo, error) { return f, nil }

func (f *header) Read(to []byte) (int, error) { return f.text.Read(to) }

func (f *header) Close() error { return nil }

func (f *header) Name() string { return f.name }

func (f *header) Size() int64 { return f.size }

func (f *header) Mode() fs.FileMode { return 0o600 }

func (f *header) ModTime() time.Time { return time.Time{} }

func (f *header) IsDir() bool { return false }

func (f *header) Sys() any { return nil }

// folder is the open folder of the texts.
type folder struct {
	header
	entries []fs.DirEntry // that were not read
}

var _ fs.ReadDirFile = (*folder)(nil)

func (f *folder) Stat() (fs.FileInfo, error) { return f, nil }

func (f *folder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
}

func (f *folder) Mode() fs.FileMode { return fs.ModeDir | 0o700 }

func (f *folder) IsDir() bool { return true }

// ReadDir implements [fs.ReadDirFile].
func (f *folder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(f.entries) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(f.entries) {
		n = len(f.entries)
	}
	read := f.entries[:n]
	f.entries = f.entries[n:]
	return read, nil
}
