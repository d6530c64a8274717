package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kind tells records of one sort from another.
type Kind string

// The kinds of records.
const (
	Manifest Kind = "manifest" // unit key -> the dependency lists seen so far
	DepList  Kind = "deplist"  // digest -> files a compile read
	Object   Kind = "object"   // result key -> digest of an object file
	Linked   Kind = "linked"   // link key -> digest of an artifact
	Failure  Kind = "failure"  // unit key -> the diagnostics of a failed compile
	Last     Kind = "last"     // module and target -> the lines of the last build
	Compiler Kind = "compiler" // toolchain digest -> the files that make it
)

// MissError says that nothing good is stored under a name, and why.
type MissError struct {
	Kind   Kind
	Key    string
	Reason string // "absent", "corrupt: ..."
}

func (e *MissError) Error() string {
	return fmt.Sprintf("cache: no %s %s: %s", e.Kind, Key(e.Key).Short(), e.Reason)
}

func (d *Dir) recordPath(kind Kind, key Key) string {
	return filepath.Join(d.base, "record", string(kind), shard(string(key)))
}

// shard is the place of a key or digest among others. What is no SHA-256 in
// hex (read from a damaged file, say) gets a place where nothing ever is.
func shard(digest string) string {
	if !isDigest(digest) {
		return filepath.Join("none", "none")
	}
	return filepath.Join(digest[:2], digest)
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// Get returns the record of a kind stored under key, in this cache or in a
// tier below it, or [*MissError]. Each record carries its own digest; one that
// does not match is put aside and counts as missing.
func (d *Dir) Get(kind Kind, key Key) ([]byte, error) {
	body, err := d.get(kind, key)
	if err == nil {
		return body, nil
	}
	for _, t := range d.tiersWith(kind, key) {
		if body, miss := t.get(kind, key); miss == nil {
			return body, nil
		}
	}
	return nil, err
}

// Has says whether this cache, or a tier below it, has something stored under key,
// without reading it.
func (d *Dir) Has(kind Kind, key Key) bool {
	for _, t := range append([]*Dir{d}, d.tiersWith(kind, key)...) {
		if info, err := os.Lstat(t.recordPath(kind, key)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// GetAll returns what this cache and each tier below it has stored under key,
// in their order.
func (d *Dir) GetAll(kind Kind, key Key) [][]byte {
	var all [][]byte
	for _, t := range append([]*Dir{d}, d.tiersWith(kind, key)...) {
		if body, err := t.get(kind, key); err == nil {
			all = append(all, body)
		}
	}
	return all
}

// get looks in this folder alone.
func (d *Dir) get(kind Kind, key Key) ([]byte, error) {
	path := d.recordPath(kind, key)
	raw, err := readRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &MissError{kind, string(key), "absent"}
	}
	if err != nil {
		d.quarantineStrange(path, err)
		return nil, &MissError{kind, string(key), err.Error()}
	}
	sum, body, ok := bytes.Cut(raw, []byte("\n"))
	if !ok || string(sum) != SHA256(body) {
		return nil, d.corrupt(kind, string(key), path, "corrupt: its checksum does not match")
	}
	return body, nil
}

// Put stores a record, replacing an earlier one.
func (d *Dir) Put(kind Kind, key Key, body []byte) error {
	data := append([]byte(SHA256(body)+"\n"), body...)
	return d.writeFile(d.recordPath(kind, key), data)
}

// Forget removes a record; a missing one is no error. What tiers have under
// that key is not looked at any more by this process.
func (d *Dir) Forget(kind Kind, key Key) error {
	d.overlook(kind, key)
	if d.readOnly {
		return nil
	}
	err := os.Remove(d.recordPath(kind, key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &AccessError{d.path, "remove from", err}
	}
	return nil
}

// writeFile writes path whole or not at all: a file in a stage of its own,
// fsync, rename.
func (d *Dir) writeFile(path string, data []byte) error {
	s, err := d.NewStage()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := writeSynced(s.File("record"), data); err != nil {
		return &AccessError{d.path, "write to", err}
	}
	if err := publish(s.File("record"), path); err != nil {
		return &AccessError{d.path, "write to", err}
	}
	return nil
}

// publishTries is how often the folder above is made again when a cleaner
// removes it, empty as it is, before the first thing lies in it.
const publishTries = 20

// publish renames a finished file or folder to its place, making the folder
// above it when it is the first there.
func publish(from, to string) error {
	err := os.Rename(from, to)
	for try := 0; errors.Is(err, fs.ErrNotExist) && try < publishTries && present(from); try++ {
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = os.Rename(from, to)
	}
	return err
}

// Quarantine moves something found corrupt out of the way, keeping it for
// inspection; when it cannot be kept it is removed. In a tier it stays.
func (d *Dir) Quarantine(path string) {
	if d.readOnly {
		return
	}
	dir := filepath.Join(d.base, "quarantine")
	_ = os.MkdirAll(dir, 0o700)
	f, err := os.MkdirTemp(dir, filepath.Base(path)+"-")
	if err == nil && os.Rename(path, filepath.Join(f, filepath.Base(path))) == nil {
		return
	}
	_ = os.RemoveAll(path)
}

// corrupt puts aside what lies at path, tells whoever watches, and returns the
// miss that it is.
func (d *Dir) corrupt(kind Kind, key, path, reason string) *MissError {
	d.Quarantine(path)
	d.tell(Fault{Path: path, Reason: reason})
	return &MissError{kind, key, reason}
}
