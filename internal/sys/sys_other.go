//go:build !linux

package sys

import (
	"io/fs"
	"os"
	"time"
)

// Stat is the state of a file.
type Stat struct {
	Mode, Uid, Gid uint32
	Size           int64
	Dev, Ino       uint64
	Ctim           Timespec
}

// Timespec is a time since 1970.
type Timespec struct{}

// Nano returns the nanoseconds.
func (Timespec) Nano() int64 { return 0 }

// Unix returns seconds and nanoseconds.
func (Timespec) Unix() (sec, nsec int64) { return 0, 0 }

// The bits of [Stat.Mode].
const (
	TypeMask = 0o170000
	Folder   = 0o040000
	Regular  = 0o100000
	Link     = 0o120000
	Pipe     = 0o010000
	Socket   = 0o140000
	Sticky   = 0o001000
)

// Flags of os.OpenFile. No function here uses them.
const (
	NoFollow   = 0
	NonBlock   = 0
	OnlyFolder = 0
)

// The kinds of locks.
const (
	Shared    = 1
	Exclusive = 2
	NoWait    = 4
	Unlock    = 8
)

var errNone = Unsupported("the kernel cache")

// Lstat fails.
func Lstat(string, *Stat) error { return errNone }

// StatFile fails.
func StatFile(string, *Stat) error { return errNone }

// Fstat fails.
func Fstat(int, *Stat) error { return errNone }

// Open fails.
func Open(string) (fd int, err error) { return -1, errNone }

// Read fails.
func Read(int, []byte) (int, error) { return 0, errNone }

// Close fails.
func Close(int) error { return errNone }

// WritableFolder fails.
func WritableFolder(string) error { return errNone }

// HasACL returns false.
func HasACL(string) bool { return false }

// Flock fails.
func Flock(*os.File, int) error { return errNone }

// ReadOnly returns false.
func ReadOnly(string) bool { return false }

// NoExec returns false.
func NoExec(string) bool { return false }

// Free fails.
func Free(string) (bytes uint64, err error) { return 0, errNone }

// Inode returns false.
func Inode(fs.FileInfo) (dev, ino, links uint64, ok bool) { return 0, 0, 0, false }

// Changed returns false.
func Changed(fs.FileInfo) (at time.Time, ok bool) { return time.Time{}, false }
