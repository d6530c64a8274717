// Package filehash computes the SHA-256 of files. It reads an unchanged file once.
//
// A Memo remembers the digest of a file together with the file's identity (size, times, inode, filesystem). It returns
// the remembered digest only while the identity is unchanged. It remembers a file only if each change of the content
// changes the identity; see filesystem.lifetime. A Memo can be saved on disk for other processes. Each record in that
// file has a checksum, so that a damaged record gives no wrong digest.
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
	// racyWindow is the age below which a file's digest is not remembered: on a filesystem with coarse time stamps
	// the file could change without a new identity.
	racyWindow = 2 * time.Second
	// maxEntries bounds a saved memo. A larger one keeps only the entries that the saving process used.
	maxEntries = 32 << 10
	// attempts is the number of reads of a file that changes during each read.
	attempts = 3
)

// Kinds of records, the first byte of a stored key. They separate digests of files from the strings of Get and Put.
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
	fresh map[string][]byte // stored since Open or Save; overrides disk
	used  map[string]bool   // keys that this process read or wrote: a full memo keeps only these
	dirty bool

	mounts mounts
	now    func() time.Time
}

// NotRegularError reports that the file to hash is not a regular file.
type NotRegularError struct {
	Path string      // as given
	Mode os.FileMode // its type
}

func (e *NotRegularError) Error() string {
	return fmt.Sprintf("hash %s: expected a regular file, got %s", e.Path, e.Mode.Type())
}

// ChangingError reports that a file changed each time it was read, so that it has no digest.
type ChangingError struct {
	Path string // as given
}

func (e *ChangingError) Error() string {
	return fmt.Sprintf("hash %s: the file changed during each of %d reads; wait until its writer is done", e.Path, attempts)
}

// Open returns the memo in the file path. A missing, unreadable or damaged file is an empty memo. With path ""
// the memo lives in memory only and Save does nothing.
func Open(path string) *Memo {
	m := &Memo{
		path: path, disk: &table{}, fresh: map[string][]byte{}, used: map[string]bool{},
		mounts: mounts{boot: sync.OnceValue(bootID)}, now: time.Now,
	}
	if path != "" {
		m.disk = readTable(path)
	}
	return m
}

// Digest returns the SHA-256 of the file's contents in lower-case hexadecimal. It follows symbolic links. The
// errors are those of open and read (testable with errors.Is and fs.ErrNotExist), *NotRegularError and
// *ChangingError.
func (m *Memo) Digest(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	id, fs, err := m.mounts.statFile(abs)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	if id, ok := fs.memoizable(id); ok {
		if sum, ok := m.recall(abs, id); ok {
			return sum, nil
		}
	}
	return m.hash(abs)
}

// Stamp returns a text that changes with the file or folder at path: at each write, even of identical bytes, when another
// file replaces it, and when a folder gets or loses a name. A store through a shared mapping changes it only if the page
// was written to the disk since the last store. Stamp follows symbolic links.
//
// lasting reports whether other processes may compare the stamp with theirs. It is false on filesystems with unreliable
// times, and for files that changed within the last two seconds.
func (m *Memo) Stamp(path string) (stamp string, lasting bool, err error) {
	now := m.now()
	id, fs, err := m.mounts.statAny(path)
	if err != nil {
		return "", false, err
	}
	id, lasting = fs.memoizable(id)
	return fmt.Sprintf("%x", id.stored()), lasting && fs.settled(id, now), nil
}

// Get returns the string stored under key.
func (m *Memo) Get(key string) (string, bool) {
	value, ok := m.load(kindValue + key)
	return string(value), ok
}

// Put stores a small string under key and replaces an earlier one.
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
		r, err := m.hashOnce(abs)
		if err != nil {
			return "", fmt.Errorf("hash %s: %w", abs, err)
		}
		if !r.stable {
			continue
		}
		if r.memoizable {
			m.store(kindFile+abs, r.id.record(r.sum))
		}
		return hex.EncodeToString(r.sum), nil
	}
	return "", &ChangingError{Path: abs}
}

// reading is the result of reading a file once.
type reading struct {
	sum        []byte
	stable     bool     // the file's identity stayed the same meanwhile
	memoizable bool     // the digest may be remembered
	id         identity // under which the digest is remembered
}

// hashOnce reads the file once and returns its digest.
func (m *Memo) hashOnce(abs string) (r reading, err error) {
	f, err := os.Open(abs)
	if err != nil {
		return r, err
	}
	defer f.Close()
	started := m.now()
	cleaned, err := m.clean(f, started)
	if err != nil {
		return r, err
	}
	before, fs, err := m.mounts.statOpen(f)
	if err != nil {
		return r, err
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, 256<<10)); err != nil {
		return r, err
	}
	after, _, err := m.mounts.statOpen(f)
	r.sum, r.stable = h.Sum(nil), before == after
	// A store through a mapping after clean has set a new change time. The next such store may leave it unchanged.
	if r.id, r.memoizable = fs.memoizable(after); !cleaned || !fs.settled(after, started) {
		r.memoizable = false
	}
	return r, err
}

// clean makes every later change of the open file change its identity, and reports whether it could. It does nothing for
// files whose digest is not remembered.
func (m *Memo) clean(f *os.File, started time.Time) (bool, error) {
	id, fs, err := m.mounts.statOpen(f)
	if err != nil || fs.lifetime(id) == never || !fs.settled(id, started) {
		return false, err
	}
	return fs.clean(f, id) == nil, nil
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
