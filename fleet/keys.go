package fleet

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/sys"
)

// maxKeyFile bounds a file of keys in bytes.
const maxKeyFile = 1 << 20

// Key is a public key that verifies the signatures of sets.
type Key struct {
	ID   string // SHA-256 of its PKIX form, in hex
	Path string // of its file
	key  *ecdsa.PublicKey
}

// KeyError reports a file of keys that cannot be used.
type KeyError struct {
	Path string
	Err  error
}

func (e *KeyError) Error() string { return fmt.Sprintf("key file %s: %v", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *KeyError) Unwrap() error { return e.Err }

var (
	errNoKey = errors.New("it has no public key; expected PEM with a block PUBLIC KEY, as cosign generate-key-pair and " +
		"openssl ec -pubout write it")
	errWrongKey = errors.New("expected an ECDSA key on the curve P-256")
	errShared   = errors.New("every user can change it and thereby allow any code to run here; run: chmod o-w")
	errNoFile   = errors.New("the folder has no file that ends in .pub or .pem")
)

// LoadKeys reads the public keys of a file, or of the files in a folder that end in .pub or .pem. A file may have several. It
// fails with [*KeyError], also for a file without a key.
func LoadKeys(path string) ([]Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, &KeyError{path, err}
	}
	if !info.IsDir() {
		return loadKeyFile(path)
	}
	// Kubernetes gives the folder of a ConfigMap the mode 0777 and mounts it read-only.
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 && !sys.ReadOnly(path) {
		return nil, &KeyError{path, errShared}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, &KeyError{path, err}
	}
	var keys []Key
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".pub" && ext != ".pem" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		more, err := loadKeyFile(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
	}
	if len(keys) == 0 {
		return nil, &KeyError{path, errNoFile}
	}
	return keys, nil
}

func loadKeyFile(path string) ([]Key, error) {
	data, err := readKeyFile(path, 0o002)
	if err != nil {
		return nil, err
	}
	var keys []Key
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "PUBLIC KEY" {
			continue
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, &KeyError{path, unreadable(block, err)}
		}
		key, err := newKey(parsed)
		if err != nil {
			return nil, &KeyError{path, err}
		}
		key.Path = path
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, &KeyError{path, errNoKey}
	}
	return keys, nil
}

// unreadable returns the error of a block whose content cannot be parsed.
func unreadable(block *pem.Block, err error) error {
	return fmt.Errorf("its block %s cannot be read: %w", block.Type, err)
}

// readKeyFile reads a file. It fails if the file's mode has a bit of forbidden.
func readKeyFile(path string, forbidden os.FileMode) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &KeyError{path, err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil && info.Mode().Perm()&forbidden != 0 {
		err = errShared
	}
	if err != nil {
		return nil, &KeyError{path, err}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(data) > maxKeyFile {
		err = fmt.Errorf("it has more than %d bytes", maxKeyFile)
	}
	if err != nil {
		return nil, &KeyError{path, err}
	}
	return data, nil
}

func newKey(public any) (Key, error) {
	key, ok := public.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return Key{}, errWrongKey
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return Key{}, err
	}
	sum := sha256.Sum256(der)
	return Key{ID: hex.EncodeToString(sum[:]), key: key}, nil
}

// hasKey reports whether a key has the ID.
func hasKey(keys []Key, id string) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return k.ID == id })
}

// Signer signs sets with a private key.
type Signer struct {
	Key     // the public half
	private *ecdsa.PrivateKey
}

// LoadSigner reads a private key on P-256 in PEM, PKCS #8 or SEC 1 without a password. It fails with [*KeyError].
func LoadSigner(path string) (*Signer, error) {
	data, err := readKeyFile(path, 0o002)
	if err != nil {
		return nil, err
	}
	private, err := parsePrivate(data)
	if err != nil {
		return nil, &KeyError{path, err}
	}
	public, err := newKey(&private.PublicKey)
	if err != nil {
		return nil, &KeyError{path, err}
	}
	public.Path = path
	return &Signer{public, private}, nil
}

func parsePrivate(data []byte) (*ecdsa.PrivateKey, error) {
	if bytes.Contains(data, []byte("ENCRYPTED")) {
		return nil, errors.New("it has a password, which this program does not read; sign the pushed set with cosign sign --key, " +
			"or give a key without a password: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			key, err := x509.ParseECPrivateKey(block.Bytes)
			if err != nil {
				return nil, unreadable(block, err)
			}
			return key, nil
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, unreadable(block, err)
			}
			if private, ok := key.(*ecdsa.PrivateKey); ok {
				return private, nil
			}
			return nil, errWrongKey
		}
	}
	return nil, errors.New("it has no private key; expected PEM with a block PRIVATE KEY or EC PRIVATE KEY")
}
