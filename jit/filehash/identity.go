//go:build unix

package filehash

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// identity is what tells one state of a file from another without reading it. The change time is in it because the
// modification time can be set back by anyone who may write the file.
type identity struct {
	size, mtime, ctime int64 // bytes; nanoseconds since 1970
	inode, device      uint64
}

const recordSize = 5*8 + sha256.Size

// statFile is the identity of the regular file at path, links followed.
func statFile(path string) (identity, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Stat(path, &st) })
	if err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return newIdentity(path, &st)
}

// statOpen is the identity of an open regular file.
func statOpen(f *os.File) (identity, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstat(int(f.Fd()), &st) })
	if err != nil {
		return identity{}, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return newIdentity(f.Name(), &st)
}

func newIdentity(path string, st *unix.Stat_t) (identity, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return identity{}, notRegular(path)
	}
	return identity{
		size:   st.Size,
		mtime:  st.Mtim.Nano(),
		ctime:  st.Ctim.Nano(),
		inode:  st.Ino,
		device: uint64(st.Dev), //nolint:unconvert // 32 bits wide on Darwin
	}, nil
}

func notRegular(path string) error {
	e := &NotRegularError{Path: path, Mode: os.ModeIrregular}
	if info, err := os.Stat(path); err == nil {
		e.Mode = info.Mode()
	}
	return e
}

// changed is when the file last changed, whatever its modification time was set to.
func (id identity) changed() time.Time { return time.Unix(0, id.ctime) }

func (id identity) fields() [5]uint64 {
	return [5]uint64{uint64(id.size), uint64(id.mtime), uint64(id.ctime), id.inode, id.device}
}

// record is the stored form: the identity, then the digest.
func (id identity) record(sum []byte) []byte {
	b := make([]byte, 0, recordSize)
	for _, v := range id.fields() {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, sum...)
}

// match returns the digest in record if the record was made of a file with this identity.
func (id identity) match(record []byte) ([]byte, bool) {
	if len(record) != recordSize {
		return nil, false
	}
	for i, v := range id.fields() {
		if binary.LittleEndian.Uint64(record[8*i:]) != v {
			return nil, false
		}
	}
	return record[5*8:], true
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
