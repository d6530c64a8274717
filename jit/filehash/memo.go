// Package filehash answers "what is the SHA-256 of this file?" without reading the file twice.
//
// A Memo remembers the digest of a file together with the file's identity (size, times, inode, device) and gives
// the remembered digest back only while the identity is unchanged. It can be kept on disk between processes; what is
// kept there is a hint: damage to it costs time, never correctness, since every record carries its own checksum.
package filehash

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// racyWindow is the age below which a file's digest is not remembered: on a file system with coarse time stamps
	// it could still change without a new identity.
	racyWindow = 2 * time.Second
	// maxEntries bounds a persisted memo; above it only what the saving process used is kept.
	maxEntries = 32 << 10
	// attempts is how often a file that changes while it is read is read again.
	attempts = 3
)

// Record kinds, the first byte of a stored key: digests of files and the small strings of Get and Put never mix.
const (
	kindFile  = "f"
	kindValue = "v"
)

// Memo remembers digests of files and small strings derived from them. It is safe for concurrent use.
// The zero value is not usable; see Open.
type Memo struct {
	path string // "" keeps it in memory

	mu    sync.Mutex
	disk  *table            // as read by Open, immutable
	fresh map[string][]byte // stored since Open: wins over disk
	used  map[string]bool   // keys read or written by this process: what is kept when the memo is full
	dirty bool
	now   func() time.Time
}

// NotRegularError says that something other than a regular file was to be hashed.
type NotRegularError struct {
	Path string      // as given
	Mode os.FileMode // what is there
}

func (e *NotRegularError) Error() string {
	return fmt.Sprintf("hash %s: expected a regular file, got %s", e.Path, e.Mode.Type())
}

// ChangingError says that a file changed each time it was read, so that it has no digest.
type ChangingError struct {
	Path string // as given
}

func (e *ChangingError) Error() string {
	return fmt.Sprintf("hash %s: the file changed during each of %d reads; wait until its writer is done", e.Path, attempts)
}

// Open returns the memo kept in the file path. A missing, unreadable or damaged file is an empty memo. With path ""
// the memo lives in memory only and Save does nothing.
func Open(path string) *Memo {
	m := &Memo{path: path, disk: &table{}, fresh: map[string][]byte{}, used: map[string]bool{}, now: time.Now}
	if path != "" {
		m.disk = readTable(path)
	}
	return m
}

// Digest returns the SHA-256 of the file's contents in lower-case hexadecimal. Symbolic links are followed. The
// errors are those of open and read (testable with errors.Is and fs.ErrNotExist), *NotRegularError and
// *ChangingError.
func (m *Memo) Digest(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	id, err := statFile(abs)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	if sum, ok := m.recall(abs, id); ok {
		return sum, nil
	}
	return m.hash(abs)
}

// Get returns the string stored under key.
func (m *Memo) Get(key string) (string, bool) {
	value, ok := m.load(kindValue + key)
	return string(value), ok
}

// Put stores a small string under key, replacing what was there.
func (m *Memo) Put(key, value string) { m.store(kindValue+key, []byte(value)) }

// recall returns the remembered digest of the file if its identity is still id.
func (m *Memo) recall(abs string, id identity) (string, bool) {
	record, ok := m.load(kindFile + abs)
	if !ok {
		return "", false
	}
	sum, ok := id.match(record)
	if !ok {
		return "", false
	}
	return hex.EncodeToString(sum), true
}

// hash reads the file until its identity is the same before and after the read, and remembers the digest.
func (m *Memo) hash(abs string) (string, error) {
	for range attempts {
		started := m.now()
		sum, id, stable, err := hashOnce(abs)
		if err != nil {
			return "", fmt.Errorf("hash %s: %w", abs, err)
		}
		if !stable {
			continue
		}
		if started.Sub(id.changed()) >= racyWindow {
			m.store(kindFile+abs, id.record(sum))
		}
		return hex.EncodeToString(sum), nil
	}
	return "", &ChangingError{Path: abs}
}

// hashOnce digests the file and reports whether its identity stayed the same meanwhile.
func hashOnce(abs string) (sum []byte, id identity, stable bool, err error) {
	f, err := os.Open(abs)
	if err != nil {
		return nil, identity{}, false, err
	}
	defer f.Close()
	before, err := statOpen(f)
	if err != nil {
		return nil, identity{}, false, err
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, 256<<10)); err != nil {
		return nil, identity{}, false, err
	}
	after, err := statOpen(f)
	if err != nil {
		return nil, identity{}, false, err
	}
	return h.Sum(nil), after, before == after, nil
}

func (m *Memo) load(key string) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.fresh[key]
	if !ok {
		value, ok = m.disk.get(key)
	}
	if ok {
		m.used[key] = true
	}
	return value, ok
}

func (m *Memo) store(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[key] = true
	if old, ok := m.disk.get(key); ok && m.fresh[key] == nil && string(old) == string(value) {
		return
	}
	m.fresh[key] = value
	m.dirty = true
}
