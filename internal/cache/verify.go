package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Fault is a damaged or missing entry.
type Fault struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	// Kept is true for an entry that was not moved to quarantine, because it is in a read-only
	// cache, could not be read, or is missing.
	Kept bool `json:"kept"`
}

// VerifyReport is the result of [Dir.Verify].
type VerifyReport struct {
	Checked int     `json:"checked"` // entries
	Faults  []Fault `json:"faults"`  // damage
	// Missing lists missing files that an artifact or a record names. They are not damage: an
	// interrupted build or [Dir.Clean] can cause them, and a build that needs such a file makes
	// it again.
	Missing []Fault `json:"missing"`
}

// Verify checks all entries of the cache and its read-only caches: contents against digests,
// records against their names, names against the layout. It moves damaged entries to
// quarantine, so that the next build makes them again. Damaged entries of read-only caches
// stay and are not used. Entries that are removed while Verify runs are not damaged.
func (d *Dir) Verify() (VerifyReport, error) {
	var rep VerifyReport
	for _, x := range append([]*Dir{d}, d.ReadOnly()...) {
		if x.unwritable == nil {
			v := verification{d: x, rep: &rep, bad: map[string]bool{}, names: map[string]string{}}
			v.all()
		}
	}
	return rep, nil
}

// verification verifies one cache.
type verification struct {
	d     *Dir
	rep   *VerifyReport
	bad   map[string]bool   // paths of faults
	names map[string]string // path of an intact record -> path of the entry that it names
}

func (v *verification) all() {
	v.top()
	v.shards("blob", "file", func(path, name string) error { return v.d.verify(path, name) })
	for _, kind := range v.folder(filepath.Join(v.d.base, "record"), true) {
		v.shards(filepath.Join("record", kind), Kind(kind), func(path, name string) error { return v.record(Kind(kind), path, name) })
	}
	artifacts := v.artifacts()
	if fault := v.d.repairCounts(); fault != "" {
		v.fault(v.d.countsPath(), fault, v.d.readOnly)
	}
	v.missing(artifacts)
}

// note counts an entry as checked and reports err. It does neither for an absent entry, which
// another process has removed.
func (v *verification) note(path string, err error) {
	var miss *MissError
	if errors.As(err, &miss) && miss.Reason == absent {
		return
	}
	v.rep.Checked++
	if errors.As(err, &miss) {
		v.fault(path, miss.Reason, v.d.readOnly || present(path))
	}
}

func (v *verification) fault(path, reason string, kept bool) {
	v.bad[path] = true
	v.rep.Faults = append(v.rep.Faults, Fault{path, reason, kept})
}

// misplaced moves an entry that must not exist at path to quarantine and reports it.
func (v *verification) misplaced(path, reason string) {
	v.note(path, v.d.corrupt("file", "", path, "corrupt: "+reason))
}

// top checks the types of the entries of the cache folder, and of its folders that contain
// files only.
func (v *verification) top() {
	for _, name := range append(folders(), "quarantine", "source", "pulled") {
		v.kind(filepath.Join(v.d.base, name), true)
	}
	for _, name := range []string{"counts", "trimmed", "filehash", "filehash.lock"} {
		v.kind(filepath.Join(v.d.base, name), false)
	}
	v.folder(filepath.Join(v.d.base, "lock"), false)
	v.folder(filepath.Join(v.d.base, "log"), false)
	if v.kind(v.d.tagPath(), false) {
		text, err := readRegular(v.d.tagPath())
		signature, _, _ := strings.Cut(tagText, "\n")
		if as[*sizeError](err) || err == nil && !bytes.HasPrefix(text, []byte(signature)) {
			v.misplaced(v.d.tagPath(), "it does not begin with the signature of a cache folder")
		}
	}
}

// kind reports whether path is of the expected type: a folder, or else a regular file. An entry
// of another type is a fault.
func (v *verification) kind(path string, folder bool) bool {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		v.note(path, &MissError{Reason: err.Error()})
		return false
	case info.IsDir() == folder && (folder || info.Mode().IsRegular()):
		return true
	}
	wrong := &irregularError{path, info.Mode(), folder}
	v.note(path, v.d.corrupt("file", "", path, wrong.Error()))
	return false
}

// folder returns the names in a folder whose entries have to be folders, or else regular files.
// Entries of another type are faults.
func (v *verification) folder(path string, folders bool) (names []string) {
	for _, e := range v.entries(path) {
		expected := e.IsDir() && folders || e.Type().IsRegular() && !folders
		if expected || v.kind(filepath.Join(path, e.Name()), folders) {
			names = append(names, e.Name())
		}
	}
	return names
}

// shards checks the files below sub, which are in folders named by the first two digits of
// their names.
func (v *verification) shards(sub string, kind Kind, check func(path, name string) error) {
	at := filepath.Join(v.d.base, sub)
	for _, dir := range v.folder(at, true) {
		for _, e := range v.entries(filepath.Join(at, dir)) {
			name := e.Name()
			path := filepath.Join(at, dir, name)
			if shard(name) != filepath.Join(dir, name) {
				v.misplaced(path, fmt.Sprintf("no %s has this name", kind))
				continue
			}
			v.note(path, check(path, name))
		}
	}
}

// entries returns the entries of a folder. It omits removed files that are open, which NFS
// renames to .nfs*.
func (v *verification) entries(path string) []os.DirEntry {
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !v.bad[path] {
		v.note(path, &MissError{Reason: err.Error()})
	}
	return slices.DeleteFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".nfs") })
}

// record checks a record and remembers the entry that it names.
func (v *verification) record(kind Kind, path, key string) error {
	body, err := v.d.get(kind, Key(key))
	if err != nil {
		return err
	}
	switch kind {
	case Object:
		digest, _, _ := strings.Cut(string(body), " ")
		v.names[path] = v.d.BlobPath(digest)
	case Linked:
		v.names[path] = v.d.artifactDir(string(body))
	}
	return nil
}

// artifacts checks all artifacts, and returns the intact ones.
func (v *verification) artifacts() (intact []Artifact) {
	for _, e := range v.entries(filepath.Join(v.d.base, "artifact")) {
		id := e.Name()
		dir := filepath.Join(v.d.base, "artifact", id)
		if !isDigest(id) {
			v.misplaced(dir, "no artifact has this name")
			continue
		}
		a, err := v.d.checkedArtifact(id, (*Dir).hashLibrary)
		if err == nil {
			intact = append(intact, a)
		}
		v.note(dir, err)
	}
	return intact
}

// missing reports missing files that artifacts and records name. For an exported artifact a
// missing record is a fault, because no build can write it again.
func (v *verification) missing(artifacts []Artifact) {
	gone := map[string]string{} // missing path -> the artifact or record that names it
	for _, a := range artifacts {
		for path := range v.d.references(a) {
			if a.Exported {
				delete(v.names, path)
			}
			switch {
			case !v.isGone(path) || a.Exported && v.d.topFolder(path) == "blob":
			case a.Exported:
				v.fault(path, "missing: without it "+a.Name()+" is not found; export it again", true)
			default:
				gone[path] = a.Name()
			}
		}
	}
	for record, path := range v.names {
		if gone[path] == "" && v.isGone(path) {
			gone[path] = "the record " + record
		}
	}
	for path, user := range gone {
		v.rep.Missing = append(v.rep.Missing, Fault{Path: path, Reason: "missing: named by " + user + "; a build that needs it makes it again"})
	}
	slices.SortFunc(v.rep.Missing, func(a, b Fault) int { return strings.Compare(a.Path, b.Path) })
}

// isGone reports whether path does not exist, unless Verify itself has moved it to quarantine.
// The folder "none" stands for an invalid name and never exists.
func (v *verification) isGone(path string) bool {
	return !v.bad[path] && filepath.Base(path) != "none" && !present(path)
}
