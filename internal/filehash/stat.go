//go:build linux

package filehash

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// statFile returns the identity of the regular file at path and its filesystem. It follows links.
func (m *mounts) statFile(path string) (identity, filesystem, error) {
	return m.statRegular(location{unix.AT_FDCWD, path, 0}, path)
}

// statAny is like statFile, for folders too.
func (m *mounts) statAny(path string) (identity, filesystem, error) {
	id, fs, _, err := m.stat(location{unix.AT_FDCWD, path, 0}, path)
	return id, fs, err
}

// statOpen is like statFile for an open file.
func (m *mounts) statOpen(f *os.File) (identity, filesystem, error) {
	return m.statRegular(location{int(f.Fd()), "", unix.AT_EMPTY_PATH}, f.Name())
}

func (m *mounts) statRegular(at location, name string) (identity, filesystem, error) {
	id, fs, mode, err := m.stat(at, name)
	if err == nil && mode&unix.S_IFMT != unix.S_IFREG {
		err = notRegular(name)
	}
	return id, fs, err
}

// location is a file in the arguments of statx.
type location struct {
	dir   int
	path  string
	flags int
}

// stat returns the identity of a file or folder, its filesystem and its mode.
func (m *mounts) stat(at location, name string) (identity, filesystem, uint32, error) {
	id, mode, err := at.identity()
	if err != nil {
		return identity{}, filesystem{}, 0, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	fs, err := m.filesystem(at, id)
	if err != nil {
		return identity{}, filesystem{}, 0, &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	id.filesystem, id.mount = fs.id, fs.mount
	return id, fs, mode, nil
}

// identity returns the identity without the filesystem, with the kernel's number of the mount, and the mode.
func (l location) identity() (identity, uint32, error) {
	st, err := l.statx(unix.STATX_MNT_ID_UNIQUE)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // the system call filters of old container engines refuse it
		return l.oldIdentity()
	}
	id := identity{
		size:   int64(st.Size),
		mtime:  nanoseconds(st.Mtime),
		ctime:  nanoseconds(st.Ctime),
		inode:  st.Ino,
		device: unix.Mkdev(st.Dev_major, st.Dev_minor),
	}
	if st.Mask&unix.STATX_MNT_ID_UNIQUE != 0 {
		id.mount = st.Mnt_id
	}
	return id, uint32(st.Mode), err
}

// oldIdentity is like identity without the number of the mount, for kernels without statx.
func (l location) oldIdentity() (identity, uint32, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(l.dir, l.path, &st, l.flags) })
	return identity{
		size:   st.Size,
		mtime:  st.Mtim.Nano(),
		ctime:  st.Ctim.Nano(),
		inode:  st.Ino,
		device: uint64(st.Dev), //nolint:unconvert // 32 bits wide on some architectures
	}, st.Mode, err
}

// statx gets the state of a file from the server of a network filesystem, because this machine may have older
// attributes.
func (l location) statx(mount int) (*unix.Statx_t, error) {
	st := new(unix.Statx_t)
	err := retry(func() error {
		return unix.Statx(l.dir, l.path, l.flags|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS|mount, st)
	})
	return st, err
}

func nanoseconds(t unix.StatxTimestamp) int64 { return t.Sec*int64(time.Second) + int64(t.Nsec) }
