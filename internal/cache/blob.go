package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// BlobPath returns the path of the blob with that SHA-256. The blob may be absent.
func (d *Dir) BlobPath(digest string) string {
	return filepath.Join(d.base, "blob", shard(digest))
}

// AddBlob publishes the finished file at path, which must be in a [Stage] of this cache, and
// returns its SHA-256. It fails with [*AccessError].
func (d *Dir) AddBlob(path string) (digest string, err error) {
	digest, err = syncAndHash(path)
	if err != nil {
		return "", &AccessError{d.path, "write to", err}
	}
	if err := d.publish(path, d.BlobPath(digest)); err != nil {
		return "", &AccessError{d.path, "write to", err}
	}
	return digest, nil
}

// Blob returns the path of the blob with that digest, in this cache or a read-only cache.
// It reads the blob and compares its digest. It moves a corrupt blob to quarantine and returns
// [*MissError].
func (d *Dir) Blob(digest string) (string, error) {
	err := d.verify(d.BlobPath(digest), digest)
	if err == nil {
		return d.BlobPath(digest), nil
	}
	for _, t := range d.ReadOnly() {
		if path := t.BlobPath(digest); t.verify(path, digest) == nil {
			return path, nil
		}
	}
	return "", err
}

// verify compares the content of the file at path with its digest. It moves a corrupt file to
// quarantine.
func (d *Dir) verify(path, digest string) error {
	got, err := d.hashOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &MissError{"file", digest, absent}
	}
	if err != nil {
		d.quarantineIrregular(path, err)
		return &MissError{"file", digest, err.Error()}
	}
	if got != digest {
		return d.corrupt("file", digest, path, fmt.Sprintf("corrupt: its content has the digest %s", Key(got).Short()))
	}
	return nil
}

// HasDigest reports whether a file has that SHA-256.
func HasDigest(path, digest string) bool {
	got, err := hashFile(path)
	return err == nil && got == digest
}

// hashOwn is hashFile for files that a process loads or links. It fails if another
// user can change the file.
func (d *Dir) hashOwn(path string) (string, error) {
	f, err := d.openOwn(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return hashReader(f)
}

func hashFile(path string) (string, error) {
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return hashReader(f)
}

func hashReader(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{r}, make([]byte, 256<<10)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// syncAndHash prepares a file for publication. It removes the write permission of group and
// others, which a compiler may set according to the umask. It syncs the file to the disk, and
// returns its SHA-256.
func syncAndHash(path string) (string, error) {
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode()&0o022 != 0 {
		_ = f.Chmod(info.Mode() &^ 0o022) // a filesystem without modes needs TrustForeign
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	return hashReader(f)
}
