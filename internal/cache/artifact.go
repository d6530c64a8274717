package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/internal/sys"
)

// Artifact is the shared library of a module, or of a part of one, for a target, with its
// description. It is in a folder of its own, which never changes.
type Artifact struct {
	ID             string    `json:"id"` // its name in the cache; see [Artifact.identify]
	Module         string    `json:"module"`
	Target         string    `json:"target"`
	Part           string    `json:"part"`      // "" for the whole module: "causal_conv1d_fwd dtype=float16"
	Digest         string    `json:"digest"`    // SHA-256 of the library, in hex
	Size           int64     `json:"size"`      // of the library, in bytes
	Ops            []string  `json:"ops"`       // operators in the library
	Toolchain      string    `json:"toolchain"` // version line of the compiler
	Built          time.Time `json:"built"`
	Seconds        float64   `json:"seconds"` // of compiling its units and of the link
	LinkKey        Key       `json:"link_key"`
	BuildRecordKey Key       `json:"build_record_key"`
	Units          []Ref     `json:"units"`
	// Exported marks a copy without its objects, as in a prebuilt cache.
	Exported bool `json:"exported,omitempty"`

	// Path is the path of the library. It is not stored, because users may move the cache.
	Path string `json:"-"`
	// ReadOnly is the folder of the read-only cache that holds it, "" for the cache itself.
	ReadOnly string `json:"-"`
	// Used is the time of the last load or build, to the hour.
	Used time.Time `json:"-"`
}

// identify returns the ID of an artifact: a digest of its module, part, target and content.
// Two modules with identical libraries have two artifacts.
func (a Artifact) identify() string {
	var l Lines
	l.Add("module", a.Module)
	l.Add("target", a.Target)
	l.Add("spec", a.Part) // as in keys, whose labels do not change
	l.Add("library", a.Digest)
	return string(l.Key())
}

// Name returns a description for people: "module_a (op dtype=float16) for gfx942".
func (a Artifact) Name() string {
	if a.Part == "" {
		return a.Module + " for " + a.Target
	}
	return a.Module + " (" + a.Part + ") for " + a.Target
}

// Ref names the cache entries of one unit of an artifact. They are removed with the artifact.
type Ref struct {
	Source string   `json:"source"`
	Unit   Key      `json:"unit"`
	Result Key      `json:"result"`
	Object string   `json:"object"`
	Deps   []string `json:"deps"` // dependency lists
}

// artifactDir returns the folder of an artifact. An invalid id, as in a damaged record, gives
// a folder that never exists.
func (d *Dir) artifactDir(id string) string {
	if !isDigest(id) {
		id = "none"
	}
	return filepath.Join(d.base, "artifact", id)
}

// AddArtifact publishes the library at path, which must be in a [Stage] of this cache, with
// its description. It sets ID, Digest, Size, Path and Used. If the cache has an identical
// artifact, it returns that. If another module or target has an identical library, both share
// it by a hard link. It fails with [*AccessError].
func (d *Dir) AddArtifact(s *Stage, path string, a Artifact) (Artifact, error) {
	digest, err := syncAndHash(path)
	if err != nil {
		return a, &AccessError{d.path, "write to", err}
	}
	a.Digest = digest
	a.ID = a.identify()
	if info, err := os.Stat(path); err == nil {
		a.Size = info.Size()
	}
	if have, err := d.Artifact(a.ID); err == nil {
		return have, nil
	}
	d.shareLibrary(s, path, a)
	if err := d.publishArtifact(s, path, a); err != nil {
		return a, &AccessError{d.path, "write to", err}
	}
	a.Path, a.Used = filepath.Join(d.artifactDir(a.ID), a.Module+".so"), time.Now()
	return a, nil
}

// shareLibrary replaces the library at path by a hard link to an identical library of another
// module. If linking fails, the library is stored twice.
func (d *Dir) shareLibrary(s *Stage, path string, a Artifact) {
	list, _ := d.Artifacts()
	for _, have := range list {
		if have.Digest != a.Digest || d.verify(have.Path, a.Digest) != nil {
			continue
		}
		if linked := s.File("linked"); os.Link(have.Path, linked) == nil {
			_ = os.Rename(linked, path)
			return
		}
	}
}

// publishArtifact makes the folder of an artifact in the stage and renames it to its place.
func (d *Dir) publishArtifact(s *Stage, path string, a Artifact) error {
	dir := s.File("artifact")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, a.Module+".so")); err != nil {
		return err
	}
	meta, err := encodeArtifact(a)
	if err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(dir, artifactMeta), meta); err != nil {
		return err
	}
	err = d.publish(dir, d.artifactDir(a.ID))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil // another process published an identical artifact first
	}
	return err
}

// writeSynced creates a file and syncs it to the disk.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Artifact returns the artifact with that ID, of this cache or else of a read-only cache.
// It reads the library and compares its digest. It moves a corrupt artifact to quarantine and
// returns [*MissError]. The call counts as a use.
func (d *Dir) Artifact(id string) (Artifact, error) {
	return d.artifactBy(id, (*Dir).hashLibrary)
}

// OpenArtifact is like [Dir.Artifact] and also returns the open library, whose content has the
// digest even if another file gets its name later. The caller closes the file.
func (d *Dir) OpenArtifact(id string) (a Artifact, library *os.File, err error) {
	a, err = d.artifactBy(id, func(from *Dir, a Artifact) (string, error) {
		f, err := from.openOwn(a.Path)
		if err != nil {
			return "", err
		}
		if library != nil { // from the cache above, with another digest
			_ = library.Close()
		}
		library = f
		return hashReader(f)
	})
	if err != nil && library != nil {
		_ = library.Close()
		library = nil
	}
	return a, library, err
}

// KnownArtifact is like [Dir.Artifact] but trusts the memoized digest. It reads the library
// only if that digest does not match. It must not be used to load a library.
func (d *Dir) KnownArtifact(id string, digest func(path string) (string, error)) (Artifact, error) {
	return d.artifactBy(id, func(from *Dir, a Artifact) (string, error) {
		st, err := lstat(a.Path)
		if err == nil && st.Mode&sys.TypeMask == sys.Regular && from.admit(a.Path, &st) == nil {
			if got, err := digest(a.Path); err == nil && got == a.Digest {
				return got, nil
			}
		}
		return from.hashLibrary(a)
	})
}

func (d *Dir) hashLibrary(a Artifact) (string, error) { return d.hashOwn(a.Path) }

// artifactBy is like Artifact. hash returns the digest of the library.
func (d *Dir) artifactBy(id string, hash func(from *Dir, a Artifact) (string, error)) (Artifact, error) {
	a, err := d.checkedArtifact(id, hash)
	for _, t := range d.ReadOnly() {
		if err == nil {
			break
		}
		below, miss := t.checkedArtifact(id, hash)
		if miss == nil || isAbsent(err) { // a damaged artifact explains more than an absent one
			a, err = below, miss
		}
	}
	if err == nil && a.ReadOnly == "" {
		d.touch(filepath.Dir(a.Path), a.Used)
	}
	return a, err
}

func isAbsent(err error) bool {
	var miss *MissError
	return errors.As(err, &miss) && miss.Reason == absent
}

// checkedArtifact is like artifactBy without the read-only caches.
func (d *Dir) checkedArtifact(id string, hash func(from *Dir, a Artifact) (string, error)) (Artifact, error) {
	a, err := d.readArtifact(id)
	if err != nil {
		return a, err
	}
	got, err := hash(d, a)
	if errors.Is(err, fs.ErrNotExist) && !present(filepath.Dir(a.Path)) {
		return a, &MissError{"artifact", id, absent} // removed meanwhile
	}
	if errors.Is(err, fs.ErrNotExist) {
		// An artifact without its library would prevent the publication of a complete one.
		return a, d.corrupt("artifact", id, d.artifactDir(id), "corrupt: its library is gone")
	}
	if err != nil {
		d.quarantineIrregular(d.artifactDir(id), err)
		return a, &MissError{"artifact", id, err.Error()}
	}
	if got != a.Digest {
		return a, d.corrupt("artifact", id, d.artifactDir(id), "corrupt: its content has the digest "+Key(got).Short())
	}
	return a, nil
}

// readArtifact reads the description without checking the library.
func (d *Dir) readArtifact(id string) (Artifact, error) {
	var a Artifact
	dir := d.artifactDir(id)
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = &irregularError{dir, info.Mode(), true}
	}
	var data []byte
	if err == nil {
		data, err = d.readOwn(filepath.Join(dir, artifactMeta))
	}
	if err == nil {
		err = decodeArtifact(data, id, &a)
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && !present(dir):
		return a, &MissError{"artifact", id, absent}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, errDescription):
		// It would prevent the publication of a complete one.
		return a, d.corrupt("artifact", id, dir, "corrupt: "+err.Error())
	default:
		d.quarantineIrregular(dir, err)
		return a, &MissError{"artifact", id, err.Error()}
	}
	a.Path = filepath.Join(dir, a.Module+".so")
	if d.readOnly {
		a.ReadOnly = d.path
	}
	a.Used = info.ModTime()
	return a, nil
}

func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// touchEvery is the resolution of Artifact.Used, so that most uses write nothing.
const touchEvery = time.Hour

// touch sets the time of use of an artifact's folder.
func (d *Dir) touch(path string, used time.Time) {
	// A time in the future comes from a wrong clock.
	if now := time.Now(); now.Sub(used).Abs() > touchEvery {
		_ = os.Chtimes(path, now, now)
	}
}

// useWait is how long [Dir.Use] waits for a [Dir.Clean] that holds the artifact's lock.
const useWait = 5 * time.Second

// Use marks the artifact as in use until the process ends or the returned function is
// called. [Dir.Clean] keeps a marked artifact. Use fails with [*MissError] if the artifact
// has been removed; the caller then builds it again.
//
// The mark is a shared lock on a file of the artifact. An artifact of a read-only cache is
// usable without the lock, because no process removes it.
func (d *Dir) Use(a Artifact) (release func() error, err error) {
	path := filepath.Join(filepath.Dir(a.Path), artifactMeta)
	for start := time.Now(); ; time.Sleep(firstPoll) {
		f, err := openRegular(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &MissError{"artifact", a.ID, "removed meanwhile"}
		}
		if err != nil {
			return nil, &AccessError{d.path, "read from", err}
		}
		err = d.flock(f, sys.Shared)
		if err == nil && sameFile(f, path) {
			return f.Close, nil
		}
		_ = f.Close()
		if err != nil && a.ReadOnly != "" {
			return func() error { return nil }, nil
		}
		if err != nil && (!errors.Is(err, syscall.EWOULDBLOCK) || time.Since(start) > useWait) {
			return nil, &AccessError{d.path, "lock an artifact in", err}
		}
	}
}

// Artifacts lists the artifacts of this cache without its read-only caches. It does not
// check the libraries' content.
func (d *Dir) Artifacts() ([]Artifact, error) {
	if d.unwritable != nil {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Join(d.base, "artifact"))
	if err != nil {
		return nil, &AccessError{d.path, "read", err}
	}
	var list []Artifact
	for _, e := range entries {
		if a, err := d.readArtifact(e.Name()); err == nil {
			list = append(list, a)
		}
	}
	return list, nil
}
