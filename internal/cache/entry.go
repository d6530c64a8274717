package cache

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// isExchanged reports whether a prebuilt cache has records of that kind. Failures depend on the machine.
func isExchanged(k Kind) bool {
	return slices.Contains([]Kind{Manifest, DepList, Object, Linked, BuildRecord, Compiler, Tuning}, k)
}

// ArtifactFiles returns the names of the files of an artifact, relative to the cache folder, with slashes.
func ArtifactFiles(a Artifact) []string {
	dir := path.Join(layout, "artifact", a.ID)
	return []string{path.Join(dir, artifactMeta), path.Join(dir, a.Module+".so")}
}

// RecordFiles returns the names of the records that lead to an artifact, as [ArtifactFiles] does, sorted.
func (d *Dir) RecordFiles(a Artifact) []string {
	var names []string
	for p := range maps.Keys(d.references(a)) {
		rel, err := filepath.Rel(d.path, p)
		if name := filepath.ToSlash(rel); err == nil && IsEntry(name) && present(p) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// IsEntry reports whether a name, relative to the cache folder, is that of a file of an artifact, or of a record that a prebuilt
// cache has. It returns false for other files of a cache, such as locks.
func IsEntry(name string) bool {
	part := strings.Split(name, "/")
	switch {
	case len(part) == 4 && part[0] == layout && part[1] == "artifact":
		module, library := strings.CutSuffix(part[3], ".so")
		return isDigest(part[2]) && (part[3] == artifactMeta || library && isModuleName(module))
	case len(part) == 5 && part[0] == layout && part[1] == "record":
		return isExchanged(Kind(part[2])) && isDigest(part[4]) && part[3] == part[4][:2]
	}
	return false
}

// isModuleName reports whether a module can have the name: letters, digits, "_", "-" and ".", not a dot first.
func isModuleName(name string) bool {
	return name != "" && name[0] != '.' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == ""
}

// IsEntryFolder reports whether a name, relative to the cache folder, is that of a folder above an entry.
func IsEntryFolder(name string) bool {
	part := strings.Split(name, "/")
	if part[0] != layout || len(part) > 4 || len(part) > 1 && part[1] != "artifact" && part[1] != "record" {
		return false
	}
	switch {
	case len(part) <= 2:
		return true
	case part[1] == "artifact":
		return len(part) == 3 && isDigest(part[2])
	}
	return isExchanged(Kind(part[2])) && (len(part) == 3 || isDigest(part[3]+strings.Repeat("0", 62)) && len(part[3]) == 2)
}

// KeepOnly removes the records that lead to none of the artifacts. No process may use the folder as a cache yet.
func (d *Dir) KeepOnly(artifacts ...Artifact) error {
	keep := map[string]bool{}
	for _, a := range artifacts {
		for p := range d.references(a) {
			keep[p] = true
		}
	}
	var first error
	d.walkBelow("record", func(p string, _ fs.FileInfo) {
		if !keep[p] {
			if err := os.Remove(p); first == nil {
				first = err
			}
		}
	})
	return first
}

// Intact fails with the first fault of the cache: a damaged entry, or a missing record of an exported artifact.
func (d *Dir) Intact() error {
	rep, err := d.Verify()
	if err == nil && len(rep.Faults) > 0 {
		err = &MissError{"entry", filepath.Base(rep.Faults[0].Path), rep.Faults[0].Reason}
	}
	return err
}

// CopyFrom copies all artifacts and records of another cache, which must be intact. It fails with [*AccessError] or [*MissError].
func (d *Dir) CopyFrom(from *Dir) error {
	artifacts, err := from.Artifacts()
	if err != nil {
		return err
	}
	for _, a := range artifacts {
		if err := d.copyArtifact(from, a); err != nil {
			return err
		}
		for _, name := range from.RecordFiles(a) {
			part := strings.Split(name, "/")
			kind, key := Kind(part[2]), Key(part[4])
			body, err := from.get(kind, key)
			if err == nil {
				err = d.Put(kind, key, body)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Dir) copyArtifact(from *Dir, a Artifact) error {
	s, err := d.NewStage()
	if err != nil {
		return err
	}
	defer s.Close()
	data, err := from.readOwn(a.Path)
	if err != nil {
		return err
	}
	library := s.File("library")
	if err := os.WriteFile(library, data, 0o600); err != nil {
		return &AccessError{d.path, "write to", err}
	}
	digest := a.Digest
	if a, err = d.AddArtifact(s, library, a); err == nil && a.Digest != digest {
		err = &MissError{"artifact", a.ID, "it changed while it was copied"}
	}
	return err
}

// Limits returns the limits of the cache.
func (d *Dir) Limits() Limits { return d.limits }
