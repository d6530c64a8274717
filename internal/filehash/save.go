package filehash

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/aiter-go/aiter/internal/sys"
)

// Save writes the new entries of this process, and those that other processes saved since Open, to the memo's file. It
// replaces the file in one step: a reader gets the old or the new file. Without new entries it writes nothing.
func (m *Memo) Save() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.path == "" || !m.dirty {
		return nil
	}
	if err := m.save(); err != nil {
		return fmt.Errorf("save digests of files: %w", err)
	}
	m.dirty = false
	return nil
}

// save merges the records and replaces the file. It holds a lock, so that processes that save at the same time keep each
// other's records.
func (m *Memo) save() error {
	if err := os.MkdirAll(filepath.Dir(m.path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(m.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // releases the lock
	// On a filesystem without locks, two processes that save at once may lose the records of one.
	_ = retry(func() error { return sys.Flock(lock, sys.Exclusive) })
	entries := m.merged(readTable(m.path))
	encoded := encodeTable(entries)
	if err := replace(m.path, encoded); err != nil {
		return err
	}
	m.disk, m.fresh = newTable(encoded), map[string][]byte{}
	return nil
}

// merged returns the records on disk, overridden by this process's. If there are too many, it returns only those that
// this process used.
func (m *Memo) merged(disk *table) map[string][]byte {
	entries := make(map[string][]byte, disk.count+len(m.fresh))
	disk.each(func(key string, value []byte) { entries[key] = value })
	for key, value := range m.fresh {
		entries[key] = value
	}
	if len(entries) <= maxEntries {
		return entries
	}
	for key := range entries {
		if !m.used[key] {
			delete(entries, key)
		}
	}
	return entries
}

// replace writes data to a temporary file and renames it to path. It does not sync: a crash may damage the file, which
// its checksums show.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
