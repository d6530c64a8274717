package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/aiter-go/aiter/internal/sys"
)

// irregularError reports an entry of another type in the place of a file or folder of the
// cache. The cache makes no links, pipes or devices.
type irregularError struct {
	path       string
	mode       fs.FileMode
	wantFolder bool
}

func (e *irregularError) Error() string {
	if e.wantFolder {
		return fmt.Sprintf("corrupt: %s is not a folder (%s)", e.path, typeName(e.mode))
	}
	return fmt.Sprintf("corrupt: %s is not a regular file (%s)", e.path, typeName(e.mode))
}

func typeName(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "regular file"
	case fs.ModeDir:
		return "folder"
	case fs.ModeSymlink:
		return "symlink"
	case fs.ModeNamedPipe:
		return "named pipe"
	case fs.ModeSocket:
		return "socket"
	}
	return "device"
}

// openRegular opens a regular file of the cache for reading. It follows no symlink, and does
// not block on a named pipe.
func openRegular(path string) (*os.File, error) {
	var st sys.Stat
	fd, err := openFD(path, &st)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openOwn is like openRegular, for files that the process loads or trusts. It fails with
// [*UntrustedError] if another user can change the file.
func (d *Dir) openOwn(path string) (*os.File, error) {
	var st sys.Stat
	fd, err := openFD(path, &st)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	if err := d.admit(path, &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openFD is like openRegular without the cost of an os.File. It fills in st.
func openFD(path string, st *sys.Stat) (fd int, err error) {
	for {
		fd, err = sys.Open(path)
		if err != syscall.EINTR {
			break
		}
	}
	if err == syscall.ELOOP || err == syscall.ENXIO {
		return -1, &irregularError{path: path, mode: linkOrSocket(path)}
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err = sys.Fstat(fd, st); err != nil {
		err = &fs.PathError{Op: "stat", Path: path, Err: err}
	} else if st.Mode&sys.TypeMask != sys.Regular {
		err = &irregularError{path: path, mode: irregularMode(st.Mode)}
	}
	if err != nil {
		_ = sys.Close(fd)
		return -1, err
	}
	return fd, nil
}

// linkOrSocket returns the type of an entry that cannot be opened because it is not a file.
func linkOrSocket(path string) fs.FileMode {
	if info, err := os.Lstat(path); err == nil {
		return info.Mode()
	}
	return fs.ModeSymlink
}

func irregularMode(mode uint32) fs.FileMode {
	switch mode & sys.TypeMask {
	case sys.Folder:
		return fs.ModeDir
	case sys.Pipe:
		return fs.ModeNamedPipe
	case sys.Socket:
		return fs.ModeSocket
	}
	return fs.ModeDevice
}

func readRegular(path string) ([]byte, error) {
	var st sys.Stat
	fd, err := openFD(path, &st)
	if err != nil {
		return nil, err
	}
	defer sys.Close(fd)
	return readFD(fd, path, st.Size)
}

// readOwn is like readRegular, for files that the process trusts. It fails with
// [*UntrustedError] if another user can change the file.
func (d *Dir) readOwn(path string) ([]byte, error) {
	var st sys.Stat
	fd, err := openFD(path, &st)
	if err != nil {
		return nil, err
	}
	defer sys.Close(fd)
	if err := d.admit(path, &st); err != nil {
		return nil, err
	}
	return readFD(fd, path, st.Size)
}

// maxRead bounds the size of a file that is read into memory. The largest file that the cache
// writes is the record of a failure, with the compiler's output.
const maxRead = 64 << 20

// sizeError reports a file that is larger than maxRead.
type sizeError struct {
	path string
	size int64 // bytes
}

func (e *sizeError) Error() string {
	return fmt.Sprintf("corrupt: %s has %d bytes, expected at most %d", e.path, e.size, maxRead)
}

func readFD(fd int, path string, size int64) ([]byte, error) {
	if size > maxRead {
		return nil, &sizeError{path, size}
	}
	// With room for one more byte the last read returns 0, or shows that the file has grown.
	data := make([]byte, 0, size+1)
	for {
		n, err := sys.Read(fd, data[len(data):cap(data)])
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return data, nil
		}
		if data = data[:len(data)+n]; len(data) > maxRead {
			return nil, &sizeError{path, int64(len(data))}
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, 512)
		}
	}
}
