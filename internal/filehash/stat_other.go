//go:build !linux

package filehash

import (
	"os"
	"time"
)

// filesystem remembers nothing, because it is unknown which changes of a file change its times.
type filesystem struct{}

type lifetime int

const never lifetime = 0

func (filesystem) lifetime(identity) lifetime              { return never }
func (filesystem) memoizable(id identity) (identity, bool) { return id, false }
func (filesystem) settled(identity, time.Time) bool        { return false }
func (filesystem) clean(*os.File, identity) error          { return nil }

type mounts struct{ boot func() string }

func bootID() string { return "" }

func (m *mounts) statFile(path string) (identity, filesystem, error) {
	info, err := os.Stat(path)
	return regular(path, info, err)
}

func (m *mounts) statOpen(f *os.File) (identity, filesystem, error) {
	info, err := f.Stat()
	return regular(f.Name(), info, err)
}

func (m *mounts) statAny(path string) (identity, filesystem, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, filesystem{}, err
	}
	return identity{size: info.Size(), mtime: info.ModTime().UnixNano()}, filesystem{}, nil
}

func regular(path string, info os.FileInfo, err error) (identity, filesystem, error) {
	switch {
	case err != nil:
		return identity{}, filesystem{}, err
	case !info.Mode().IsRegular():
		return identity{}, filesystem{}, notRegular(path)
	}
	return identity{size: info.Size(), mtime: info.ModTime().UnixNano()}, filesystem{}, nil
}
