package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
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
	fd, _, err := openFD(path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openFD is openRegular without what an os.File costs beyond the system call.
func openFD(path string) (fd int, size int64, err error) {
	for {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			break
		}
	}
	if err == unix.ELOOP || err == unix.ENXIO {
		return -1, 0, &irregularError{path, fs.ModeSymlink}
	}
	if err != nil {
		return -1, 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = &fs.PathError{Op: "stat", Path: path, Err: err}
	} else if st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = &irregularError{path, irregularMode(st.Mode)}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

func irregularMode(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	}
	return fs.ModeDevice
}

func readRegular(path string) ([]byte, error) {
	fd, size, err := openFD(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// One byte more shows that the file does not go on.
	data := make([]byte, 0, size+1)
	for {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return data, nil
		}
		if data = data[:len(data)+n]; len(data) == cap(data) {
			data = slices.Grow(data, 512)
		}
	}
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
