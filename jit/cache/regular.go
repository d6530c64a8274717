package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// irregularError reports something that lies in the place of a file of the
// cache and is none. The cache makes no links, pipes or devices.
type irregularError struct {
	path string
	mode fs.FileMode
}

func (e *irregularError) Error() string {
	return fmt.Sprintf("corrupt: %s is no regular file (%s)", e.path, e.mode.Type())
}

// openRegular opens a file of the cache for reading. It follows no symlink and
// never blocks, whatever lies there.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, &irregularError{path, fs.ModeSymlink}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &irregularError{path, info.Mode()}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func readRegular(path string) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// quarantineStrange puts aside what could not be read because it is no file.
// Any other failure to read (no permission, no file descriptor left, a bad
// disk) says nothing about the content, which stays.
func (d *Dir) quarantineStrange(path string, err error) {
	var strange *irregularError
	if errors.As(err, &strange) {
		_ = d.corrupt("file", "", path, err.Error())
	}
}
