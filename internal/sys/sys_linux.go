package sys

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Stat is the state of a file.
type Stat = unix.Stat_t

// The bits of [Stat.Mode].
const (
	TypeMask = unix.S_IFMT
	Folder   = unix.S_IFDIR
	Regular  = unix.S_IFREG
	Link     = unix.S_IFLNK
	Pipe     = unix.S_IFIFO
	Socket   = unix.S_IFSOCK
	Sticky   = unix.S_ISVTX
)

// Flags of os.OpenFile.
const (
	NoFollow   = unix.O_NOFOLLOW
	NonBlock   = unix.O_NONBLOCK
	OnlyFolder = unix.O_DIRECTORY
)

// The kinds of locks of flock(2).
const (
	Shared    = unix.LOCK_SH
	Exclusive = unix.LOCK_EX
	Unlock    = unix.LOCK_UN
	NoWait    = unix.LOCK_NB
)

// Lstat returns the state of a name, without following a symbolic link.
func Lstat(path string, st *Stat) error { return unix.Lstat(path, st) }

// StatFile returns the state of a file. It follows symbolic links.
func StatFile(path string, st *Stat) error { return unix.Stat(path, st) }

// Fstat returns the state of an open file.
func Fstat(fd int, st *Stat) error { return unix.Fstat(fd, st) }

// Open opens a file for reading. It follows no symbolic link and does not wait for the writer of a pipe.
func Open(path string) (fd int, err error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// Read reads from an open file.
func Read(fd int, to []byte) (int, error) { return unix.Read(fd, to) }

// Close closes a descriptor.
func Close(fd int) error { return unix.Close(fd) }

// WritableFolder returns an error unless this process may create files in the folder.
func WritableFolder(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// HasACL reports whether the file has an access control list.
func HasACL(path string) bool {
	n, err := unix.Lgetxattr(path, "system.posix_acl_access", nil)
	return err == nil && n > 0
}

// Flock locks or unlocks an open file.
func Flock(f *os.File, how int) error { return unix.Flock(int(f.Fd()), how) }

// ReadOnly reports whether a folder is on a filesystem that is mounted read-only.
func ReadOnly(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// NoExec reports whether a folder is on a filesystem from which no program runs.
func NoExec(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC != 0
}

// Free returns the bytes that this user may still write to the filesystem of a path.
func Free(path string) (bytes uint64, err error) {
	var st unix.Statfs_t
	err = unix.Statfs(path, &st)
	return st.Bavail * uint64(st.Bsize), err
}

// Inode returns the device and the number of a file, and how many names it has.
func Inode(info fs.FileInfo) (dev, ino, links uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, 0, false
	}
	return uint64(st.Dev), st.Ino, uint64(st.Nlink), true
}

// Changed returns the change time of a file.
func Changed(info fs.FileInfo) (at time.Time, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(st.Ctim.Unix()), true
}
