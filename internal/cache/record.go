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

// Kind is a kind of records.
type Kind string

// The kinds of records.
const (
	Manifest    Kind = "manifest" // unit key -> the dependency sets of the unit
	DepList     Kind = "deplist"  // digest -> a dependency list
	Object      Kind = "object"   // result key -> digest of an object file
	Linked      Kind = "linked"   // link key -> ID of an artifact
	Failure     Kind = "failure"  // unit key or link key -> the error of a failed run
	BuildRecord Kind = "last"     // module, part and target -> the build record
	Compiler    Kind = "compiler" // digest of a toolchain -> its files
	Tuning      Kind = "tuning"   // digest of a library -> launch parameters for it, see [TuningKey]
)

// MissError reports that the cache has no valid entry under a key, and the reason.
type MissError struct {
	Kind   Kind
	Key    string
	Reason string // "absent", "corrupt: ..."
}

const absent = "absent"

func (e *MissError) Error() string {
	return fmt.Sprintf("cache: no %s %s: %s", e.Kind, Key(e.Key).Short(), e.Reason)
}

func (d *Dir) recordPath(kind Kind, key Key) string {
	return filepath.Join(d.base, "record", string(kind), shard(string(key)))
}

// shard returns the path of a key or digest within its folder. An invalid digest, as in a
// damaged file, gives a path that never exists.
func shard(digest string) string {
	if !isDigest(digest) {
		return filepath.Join("none", "none")
	}
	return filepath.Join(digest[:2], digest)
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// Get returns the record of a kind under a key, in this cache or a read-only cache, or
// [*MissError]. Each record has a checksum of its kind, key and body. A record with a wrong
// checksum is moved to quarantine and counts as missing.
func (d *Dir) Get(kind Kind, key Key) ([]byte, error) {
	body, err := d.get(kind, key)
	if err == nil {
		return body, nil
	}
	for _, t := range d.readOnlyWith(kind, key) {
		if body, miss := t.get(kind, key); miss == nil {
			return body, nil
		}
	}
	return nil, err
}

// Has reports whether this cache or a read-only cache has a record under key. It does not
// read the record.
func (d *Dir) Has(kind Kind, key Key) bool {
	for _, t := range append([]*Dir{d}, d.readOnlyWith(kind, key)...) {
		if info, err := os.Lstat(t.recordPath(kind, key)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// Find calls use with the records under a key, first that of this cache, then those of the
// read-only caches, until use returns nil. If use fails with [*WrongRecordError], the record
// does not belong under this key and is moved to quarantine. Find returns the first error
// other than an absent record, or [*MissError].
func (d *Dir) Find(kind Kind, key Key, use func(body []byte) error) error {
	var first error
	for _, t := range append([]*Dir{d}, d.readOnlyWith(kind, key)...) {
		body, err := t.get(kind, key)
		if err == nil {
			err = use(body)
		}
		var wrong *WrongRecordError
		if errors.As(err, &wrong) {
			err = t.corrupt(kind, string(key), t.recordPath(kind, key), "corrupt: "+wrong.Error())
		}
		if err == nil {
			return nil
		}
		if first == nil || isAbsent(first) { // damage explains more than an absent record
			first = err
		}
	}
	return first
}

// WrongRecordError reports an intact record that leads to the entry of another key.
type WrongRecordError struct {
	Got, Want string // "module_a for cpu"
}

func (e *WrongRecordError) Error() string {
	return fmt.Sprintf("it leads to %s, expected %s", e.Got, e.Want)
}

// GetAll returns the records under a key of this cache and of its read-only caches, in
// their order.
func (d *Dir) GetAll(kind Kind, key Key) [][]byte {
	var all [][]byte
	for _, t := range append([]*Dir{d}, d.readOnlyWith(kind, key)...) {
		if body, err := t.get(kind, key); err == nil {
			all = append(all, body)
		}
	}
	return all
}

// get is like Get without the read-only caches.
func (d *Dir) get(kind Kind, key Key) ([]byte, error) {
	path := d.recordPath(kind, key)
	raw, err := d.readOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &MissError{kind, string(key), absent}
	}
	if err != nil {
		d.quarantineIrregular(path, err)
		return nil, &MissError{kind, string(key), err.Error()}
	}
	body, fault := decodeRecord(kind, key, raw)
	if fault != "" {
		return nil, d.corrupt(kind, string(key), path, "corrupt: "+fault)
	}
	return body, nil
}

// encodeRecord returns a record in its stored form: the line "CHECKSUM KIND KEY" and the body.
// The checksum is the SHA-256 of all bytes after it. It covers kind and key, so that a lookup
// detects a record in the place of another.
func encodeRecord(kind Kind, key Key, body []byte) []byte {
	named := append([]byte(recordName(kind, key)+"\n"), body...)
	return append([]byte(SHA256(named)+" "), named...)
}

// decodeRecord returns the body of a stored record. fault is the reason why raw is not
// the record of that kind and key, "" if it is.
func decodeRecord(kind Kind, key Key, raw []byte) (body []byte, fault string) {
	sum, named, ok := bytes.Cut(raw, []byte(" "))
	if !ok || string(sum) != SHA256(named) {
		return nil, "its checksum does not match"
	}
	name, body, _ := bytes.Cut(named, []byte("\n"))
	if want := recordName(kind, key); string(name) != want {
		return nil, fmt.Sprintf("it is the record %q, expected %q", name, want)
	}
	// The key of a dependency list is the digest of its content.
	if kind == DepList && SHA256(body) != string(key) {
		return nil, "its content has the digest " + Key(SHA256(body)).Short()
	}
	return body, ""
}

func recordName(kind Kind, key Key) string { return string(kind) + " " + string(key) }

// Put stores a record and replaces an earlier one. It fails with [*AccessError].
func (d *Dir) Put(kind Kind, key Key, body []byte) error {
	return d.writeFile(d.recordPath(kind, key), encodeRecord(kind, key, body))
}

// Forget removes a record. A missing record is not an error. Later lookups of this process ignore
// the record of that key in read-only caches.
func (d *Dir) Forget(kind Kind, key Key) error {
	d.ignoreBelow(kind, key)
	if d.readOnly {
		return nil
	}
	err := os.Remove(d.recordPath(kind, key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &AccessError{d.path, "remove from", err}
	}
	return nil
}

// writeFile writes path completely or not at all: it writes a file in a new stage, syncs it,
// and renames it.
func (d *Dir) writeFile(path string, data []byte) error {
	s, err := d.NewStage()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := writeSynced(s.File("record"), data); err != nil {
		return &AccessError{d.path, "write to", err}
	}
	if err := d.publish(s.File("record"), path); err != nil {
		return &AccessError{d.path, "write to", err}
	}
	return nil
}
