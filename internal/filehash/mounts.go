//go:build linux

package filehash

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lifetime is how long a digest may be remembered.
type lifetime int

const (
	never    lifetime = iota // it may not be remembered
	perMount                 // until the filesystem is unmounted or the machine boots again
	always                   // without limit
)

// kind classifies filesystems by the origin of the change times of their files.
type kind int

const (
	foreign kind = iota // unreliable: a program or a server sets them, or stores through mappings do not change them (tmpfs)
	local               // the kernel sets the change time at each change
	layered             // local for changed files; the other files belong to other filesystems
	remote              // the kernel of a server sets the change time
	image               // read-only; the tool that built it has set the times
)

const zfsMagic = 0x2fc12fc1

// kindOf returns the kind of the filesystem type with that magic number.
func kindOf(magic uint32) kind {
	switch magic {
	case unix.EXT4_SUPER_MAGIC, // ext2 and ext3 too
		unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.BCACHEFS_SUPER_MAGIC, zfsMagic:
		return local
	case unix.OVERLAYFS_SUPER_MAGIC:
		return layered
	case unix.NFS_SUPER_MAGIC:
		return remote
	case unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1, unix.ISOFS_SUPER_MAGIC, unix.CRAMFS_MAGIC:
		return image
	}
	return foreign
}

// filesystem describes the filesystem of a mount.
type filesystem struct {
	magic    uint32
	id       uint64
	mount    uint64 // see identity.mount
	readOnly bool   // in all mounts; false for a read-only mount of a writable filesystem
}

// lifetime returns how long the digest of a file with this identity may be remembered.
//
// Tools that build images give all files times of their choice: in whole seconds, or copied from the modification time.
// Only a kernel that has written the file itself gives it a change time with nanoseconds. Such a tool may build a second
// image that differs from the first only in the text of a file; the number of the mount distinguishes the two. A foreign
// filesystem that is read-only here may be writable on its server.
func (fs filesystem) lifetime(id identity) lifetime {
	k := kindOf(fs.magic)
	stamped := id.stamped()
	copied := id.ctime == id.mtime // or the last change wrote the content
	switch {
	case k == local && stamped && !fs.readOnly,
		k == layered && stamped && !copied && !fs.readOnly,
		k == remote && stamped && !copied:
		return always
	case id.mount != 0 && (k == image || k == local || k == layered):
		return perMount
	}
	return never
}

// memoizable returns the identity under which the file's digest may be remembered; false if it may not.
func (fs filesystem) memoizable(id identity) (identity, bool) {
	switch fs.lifetime(id) {
	case never:
		return id, false
	case always:
		id.mount = 0
	}
	return id, true
}

// settled reports whether the last change of the file is so long ago that the next one sets another time.
func (fs filesystem) settled(id identity, now time.Time) bool {
	k := kindOf(fs.magic)
	immutable := k == image || fs.readOnly && k != remote
	return immutable || now.Sub(id.changed()) >= racyWindow
}

// clean writes the changed pages of an open file to the disk. The kernel sets the change time at the first store through a
// mapping after that. Later stores do not change it until the page is written to the disk again.
func (fs filesystem) clean(f *os.File, id identity) error {
	if fs.readOnly {
		return nil
	}
	fd := int(f.Fd())
	if kindOf(fs.magic) == layered && id.stamped() {
		if err := onDisk(fd); err != nil {
			return err
		}
	}
	if kindOf(fs.magic) == local && fs.magic != zfsMagic {
		// Unlike fsync, this costs nothing for a file without changed pages.
		err := retry(func() error { return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE_AND_WAIT) })
		if err == nil {
			return nil
		}
	}
	return retry(func() error { return unix.Fsync(fd) })
}

// onDisk returns an error if the file of an overlay may be on tmpfs, which never writes a page to a disk. Filesystems on
// disks answer FIEMAP, which returns the extents of a file; tmpfs does not.
func onDisk(fd int) error {
	const fiemap = 0xc020660b // FS_IOC_FIEMAP
	request := struct {
		start, length                 uint64
		flags, mapped, room, reserved uint32
	}{length: math.MaxUint64}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fiemap, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return errno
	}
	return nil
}

// mounts remembers the filesystem of each mount.
type mounts struct {
	boot func() string // identifies the boot of the kernel
	seen sync.Map      // place -> filesystem
}

// place identifies a filesystem by the kernel's numbers. One mount of Btrfs has several devices, one for each subvolume.
type place struct{ mount, device uint64 }

// bootID returns the kernel's name for this boot. Without one it returns random letters, so that digests that depend on it
// are not remembered beyond this process.
func bootID() string {
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && len(id) > 0 {
		return string(id)
	}
	return rand.Text()
}

// instance returns a number that identifies the mount among all mounts of all boots. It returns 0 if the kernel has no
// unique numbers for mounts, as before Linux 6.8.
func (m *mounts) instance(number uint64) uint64 {
	if number == 0 {
		return 0
	}
	h := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(m.boot()), number))
	return binary.LittleEndian.Uint64(h[:]) | 1
}

// filesystem returns the filesystem of a file. The identity holds the device and the kernel's number of the mount.
func (m *mounts) filesystem(l location, id identity) (filesystem, error) {
	at := place{id.mount, id.device}
	if fs, ok := m.seen.Load(at); ok && id.mount != 0 {
		return fs.(filesystem), nil
	}
	var st unix.Statfs_t
	err := retry(func() error {
		if l.path == "" {
			return unix.Fstatfs(l.dir, &st)
		}
		return unix.Statfs(l.path, &st)
	})
	if err != nil {
		return filesystem{}, err
	}
	fs := filesystem{magic: uint32(st.Type), id: uint64(uint32(st.Fsid.Val[0])) | uint64(st.Fsid.Val[1])<<32}
	fs.readOnly = st.Flags&unix.ST_RDONLY != 0 && !l.writableElsewhere()
	fs.mount = m.instance(id.mount)
	m.seen.Store(at, fs)
	return fs, nil
}

// writableElsewhere reports whether a read-only mount shows a filesystem that can be written to through another
// mount. Containers have such bind mounts.
func (l location) writableElsewhere() bool {
	st, err := l.statx(unix.STATX_MNT_ID)
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return false
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && superWritable(string(table), st.Mnt_id)
}

// superWritable reports whether the options of the filesystem, not those of the mount, are "rw". The form of a line:
//
//	36 35 98:0 /root /mount ro,noatime master:1 - ext3 /dev/root rw,errors=continue
func superWritable(mountinfo string, mount uint64) bool {
	for line := range strings.Lines(mountinfo) {
		number, rest, _ := strings.Cut(line, " ")
		if number != strconv.FormatUint(mount, 10) {
			continue
		}
		_, super, _ := strings.Cut(rest, " - ")
		fields := strings.Fields(super)
		if len(fields) < 3 {
			return false
		}
		first, _, _ := strings.Cut(fields[2], ",")
		return first == "rw"
	}
	return false
}
