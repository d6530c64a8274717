package filehash

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"
)

// identity distinguishes states of a file without reading it. It holds the change time, because every user with write
// permission can set the modification time back.
type identity struct {
	size, mtime, ctime int64 // bytes; nanoseconds since 1970
	inode, device      uint64
	filesystem         uint64 // f_fsid: for most filesystems derived from their UUID
	mount              uint64 // the mount in this boot; 0 if the kernel does not number mounts, or if it does not matter
}

const (
	storedFields = 7
	recordSize   = storedFields*8 + sha256.Size
)

func notRegular(path string) error {
	e := &NotRegularError{Path: path, Mode: os.ModeIrregular}
	if info, err := os.Stat(path); err == nil {
		e.Mode = info.Mode()
	}
	return e
}

// changed returns the change time. Unlike the modification time, no program can set it.
func (id identity) changed() time.Time { return time.Unix(0, id.ctime) }

// stamped reports whether a kernel has set the change time: tools that build images set whole seconds.
func (id identity) stamped() bool { return id.ctime%int64(time.Second) != 0 }

func (id identity) stored() [storedFields]uint64 {
	return [storedFields]uint64{uint64(id.size), uint64(id.mtime), uint64(id.ctime), id.inode, id.device, id.filesystem, id.mount}
}

// record returns the stored form: the identity, then the digest.
func (id identity) record(sum []byte) []byte {
	b := make([]byte, 0, recordSize)
	for _, v := range id.stored() {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, sum...)
}

// match returns the digest in record if the record was made of a file with this identity.
func (id identity) match(record []byte) ([]byte, bool) {
	if len(record) != recordSize {
		return nil, false
	}
	for i, v := range id.stored() {
		if binary.LittleEndian.Uint64(record[8*i:]) != v {
			return nil, false
		}
	}
	return record[storedFields*8:], true
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
