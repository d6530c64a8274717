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

// BlobPath returns where the blob with that SHA-256 is, or would be.
func (d *Dir) BlobPath(digest string) string {
	return filepath.Join(d.base, "blob", shard(digest))
}

// AddBlob moves the finished file at path, which must lie in a [Stage] of
// this cache, into the store and returns its SHA-256.
func (d *Dir) AddBlob(path string) (digest string, err error) {
	digest, err = syncAndHash(path)
	if err != nil {
		return "", &AccessError{d.path, "write to", err}
	}
	if err := publish(path, d.BlobPath(digest)); err != nil {
		return "", &AccessError{d.path, "write to", err}
	}
	return digest, nil
}

// Blob returns the path of the blob with that digest after reading it through
// and comparing; a corrupt one is put aside and reported as [*MissError].
func (d *Dir) Blob(digest string) (string, error) {
	path := d.BlobPath(digest)
	if err := d.verify(path, digest); err != nil {
		return "", err
	}
	return path, nil
}

func (d *Dir) verify(path, digest string) error {
	got, err := hashFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &MissError{"file", digest, "absent"}
	}
	if err != nil {
		d.quarantineStrange(path, err)
		return &MissError{"file", digest, err.Error()}
	}
	if got != digest {
		d.Quarantine(path)
		return &MissError{"file", digest, fmt.Sprintf("corrupt: its content has the digest %s", Key(got).Short())}
	}
	return nil
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
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// syncAndHash makes a file durable before it is published under its digest.
func syncAndHash(path string) (string, error) {
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return "", err
	}
	return hashReader(f)
}
