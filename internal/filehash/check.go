package filehash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Check returns an error that describes damage to the memo in the file path. It returns nil if
// the file is missing, or if path is not a regular file.
func Check(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if info.Size() > maxFile {
		return fmt.Errorf("it has %d bytes, expected at most %d", info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t := newTable(data)
	if t.data == nil {
		return fmt.Errorf("it does not begin with the header of a table of digests, or is cut short (%d bytes)", len(data))
	}
	return t.check()
}

// check returns an error for the first record that is damaged, or does not follow the one before it.
func (t *table) check() error {
	at := len(magic) + 4 + 4*t.count
	for i := range t.count {
		offset := binary.LittleEndian.Uint32(t.data[len(magic)+4+4*i:])
		_, _, whole := t.record(i)
		if int64(offset) != int64(at) || !intact(whole) {
			return fmt.Errorf("record %d of %d is damaged", i+1, t.count)
		}
		at += len(whole)
	}
	if at != len(t.data) {
		return fmt.Errorf("%d bytes follow the last of %d records", len(t.data)-at, t.count)
	}
	return nil
}
