//go:build linux

package jit_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// sibling returns another entry of the same kind as path, "" if there is none.
func sibling(path string) string {
	for _, pattern := range []string{"*", "../*/*", "../*/" + filepath.Base(path), "../*/*.so"} {
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(path), pattern))
		for _, p := range found {
			a, errA := os.ReadFile(path)
			b, errB := os.ReadFile(p)
			if p != path && errA == nil && errB == nil && filepath.Ext(p) == filepath.Ext(path) && !bytes.Equal(a, b) {
				return p
			}
		}
	}
	return ""
}

// edit returns a function that changes the content of a file.
func edit(change func([]byte) []byte) func(string) error {
	return func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, change(data), 0o600)
	}
}

// replaceBy returns a function that replaces a file or folder by something else.
func replaceBy(put func(path string) error) func(string) error {
	return func(path string) error { return errors.Join(os.RemoveAll(path), put(path)) }
}

var contents = map[string]func(string) error{
	"first bit flipped":    edit(func(b []byte) []byte { b[0] ^= 1; return b }),
	"middle bit flipped":   edit(func(b []byte) []byte { b[len(b)/2] ^= 4; return b }),
	"last bit flipped":     edit(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
	"cut by a byte":        edit(func(b []byte) []byte { return b[:len(b)-1] }),
	"cut in half":          edit(func(b []byte) []byte { return b[:len(b)/2] }),
	"appended to":          edit(func(b []byte) []byte { return append(b, 'x') }),
	"zeroed":               edit(func(b []byte) []byte { clear(b); return b }),
	"emptied":              edit(func([]byte) []byte { return nil }),
	"doubled":              edit(func(b []byte) []byte { return append(b, b...) }),
	"prepended to":         edit(func(b []byte) []byte { return append([]byte("x"), b...) }),
	"without a byte":       edit(func(b []byte) []byte { return slices.Delete(b, len(b)/2, len(b)/2+1) }),
	"without a first line": edit(func(b []byte) []byte { _, rest, _ := bytes.Cut(b, []byte("\n")); return rest }),
	"reversed":             edit(func(b []byte) []byte { slices.Reverse(b); return b }),
}

var exchanges = map[string]func(string) error{
	"exchanged with another": func(p string) error {
		other := sibling(p)
		return errors.Join(os.Rename(p, p+".x"), os.Rename(other, p), os.Rename(p+".x", other))
	},
	"copied from another": func(p string) error {
		data, err := os.ReadFile(sibling(p))
		return errors.Join(err, os.WriteFile(p, data, 0o600))
	},
	"a hard link to another": func(p string) error {
		other := sibling(p)
		return errors.Join(os.Remove(p), os.Link(other, p))
	},
	"renamed to another's key": func(p string) error { return os.Rename(p, sibling(p)) },
}

var irregulars = map[string]func(string) error{
	"a pipe":         replaceBy(func(p string) error { return syscall.Mkfifo(p, 0o600) }),
	"a folder":       replaceBy(func(p string) error { return os.MkdirAll(filepath.Join(p, "sub"), 0o700) }),
	"an empty file":  replaceBy(func(p string) error { return os.WriteFile(p, nil, 0o600) }),
	"a dead symlink": replaceBy(func(p string) error { return os.Symlink("nowhere", p) }),
	"a loop":         replaceBy(func(p string) error { return os.Symlink(p, p) }),
	"a socket":       replaceBy(func(p string) error { return syscall.Mknod(p, syscall.S_IFSOCK|0o600, 0) }),
	"a device":       replaceBy(func(p string) error { return os.Symlink("/dev/zero", p) }),
	"a symlink to a copy of it": func(p string) error {
		return errors.Join(os.Rename(p, p+".nfs-moved"), os.MkdirAll(filepath.Dir(p)+"/.nfs", 0o700),
			os.Rename(p+".nfs-moved", filepath.Dir(p)+"/.nfs/copy"), os.Symlink(filepath.Dir(p)+"/.nfs/copy", p))
	},
}
