package fleet

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeyFiles reads files and folders of keys.
func TestKeyFiles(t *testing.T) {
	private, public := newKeys(t)
	_, second := newKeys(t)
	dir := t.TempDir()
	write := func(name string, mode os.FileMode, parts ...string) string {
		var all []byte
		for _, p := range parts {
			data, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data...)
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, all, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const rsa = "-----BEGIN PUBLIC KEY-----\n" +
		"MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKx1c7RR7R/drnBSQ/zfx1vQLHUbFLh1\n" +
		"AQQQ5R8DZUXd36efNK79vukFhN9HFoHZiUvOjm0c+pVE6K+EdE/doucCAwEAAQ==\n" +
		"-----END PUBLIC KEY-----\n"
	if err := os.WriteFile(filepath.Join(dir, "rsa"), []byte(rsa), 0o600); err != nil {
		t.Fatal(err)
	}
	write("folder/a.pub", 0o644, public)
	write("folder/b.pem", 0o644, second)
	write("folder/README", 0o644, private)
	// As Kubernetes mounts a ConfigMap: a symlink to a file in a hidden folder.
	volume := filepath.Join(dir, "volume")
	write("volume/..data/ci.pub", 0o644, public)
	if err := os.Symlink("..data/ci.pub", filepath.Join(volume, "ci.pub")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		keys       int
		want       string
	}{
		{"one", public, 1, ""},
		{"two in a file", write("both.pub", 0o644, public, second), 2, ""},
		{"folder", filepath.Join(dir, "folder"), 2, ""},
		{"volume", volume, 1, ""},
		{"private", private, 0, "it has no public key"},
		{"missing", filepath.Join(dir, "nowhere"), 0, "no such file"},
		{"empty folder", t.TempDir(), 0, "no file that ends in .pub"},
		{"writable by all", write("shared.pub", 0o666, public), 0, "every user can change it"},
		{"RSA", filepath.Join(dir, "rsa"), 0, "expected an ECDSA key on the curve P-256"},
	} {
		keys, err := LoadKeys(c.path)
		if len(keys) != c.keys || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d keys, %v", c.name, len(keys), err)
		}
	}
}

// writeFile writes a file and returns its path.
func writeFile(t *testing.T, data []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pub")
	if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

func pemBlock(kind string, data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
}

// TestKeyTexts reads files and folders of public keys that cannot be used.
func TestKeyTexts(t *testing.T) {
	_, public := newKeys(t)
	good, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	shared := filepath.Dir(writeFile(t, good, 0o644))
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "ci.pub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want string }{
		{"shared folder", shared,
			"key file " + shared + ": every user can change it and thereby allow any code to run here; run: chmod o-w"},
		{"folder in the place of a file", folder, "it is not a regular file"},
		{"large", writeFile(t, bytes.Repeat([]byte("x"), maxKeyFile+1), 0o600), "it has more than 1048576 bytes"},
		{"damaged", writeFile(t, pemBlock("PUBLIC KEY", []byte("x"), nil), 0o600), "its block PUBLIC KEY cannot be read: asn1: "},
		{"damaged in a folder", filepath.Dir(writeFile(t, []byte("x"), 0o600)),
			"key.pub: it has no public key; expected PEM"},
	} {
		keys, err := LoadKeys(c.path)
		var failed *KeyError
		if len(keys) != 0 || !errors.As(err, &failed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want a *KeyError with %q", c.name, keys, err, c.want)
		}
	}
}

// TestSignerTexts reads private keys, most of which cannot be used.
func TestSignerTexts(t *testing.T) {
	_, public := newKeys(t)
	key, errA := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	large, errB := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, edwards, errC := ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(errA, errB, errC); err != nil {
		t.Fatal(err)
	}
	sec1 := func(k *ecdsa.PrivateKey) []byte {
		data, err := x509.MarshalECPrivateKey(k)
		return pemBlock("EC PRIVATE KEY", data, err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(edwards)
	for _, c := range []struct{ name, path, want string }{
		{"SEC 1", writeFile(t, sec1(key), 0o600), ""},
		{"public key", public, "it has no private key; expected PEM with a block PRIVATE KEY or EC PRIVATE KEY"},
		{"P-384", writeFile(t, sec1(large), 0o600), "expected an ECDSA key on the curve P-256"},
		{"Ed25519", writeFile(t, pemBlock("PRIVATE KEY", pkcs8, err), 0o600), "expected an ECDSA key on the curve P-256"},
		{"damaged", writeFile(t, pemBlock("PRIVATE KEY", []byte("x"), nil), 0o600), "its block PRIVATE KEY cannot be read: asn1: "},
		{"password", writeFile(t, pemBlock("ENCRYPTED PRIVATE KEY", []byte("x"), nil), 0o600),
			"sign the pushed set with cosign sign --key, or give a key"},
		{"writable by all", writeFile(t, sec1(key), 0o606), "run: chmod o-w"},
		{"missing", filepath.Join(t.TempDir(), "none"), "no such file"},
	} {
		signer, err := LoadSigner(c.path)
		var failed *KeyError
		refused := errors.As(err, &failed) && strings.Contains(err.Error(), c.want)
		if c.want == "" && (err != nil || signer.ID == "") || c.want != "" && !refused {
			t.Errorf("%s: %v, want a *KeyError with %q", c.name, err, c.want)
		}
	}
}

// TestReferences parses references.
func TestReferences(t *testing.T) {
	for _, c := range []struct {
		in, want      string
		plain, pinned bool
	}{
		{"registry.example/aiter/kernels:v1", "registry.example/aiter/kernels:v1", false, false},
		{"oci://registry.example:5000/kernels:v1", "registry.example:5000/kernels:v1", false, false},
		{"oci+http://registry.example/kernels:v1", "registry.example/kernels:v1", true, false},
		{"localhost:5000/kernels:v1", "localhost:5000/kernels:v1", true, false},
		{"oci+https://127.0.0.1:5000/kernels:v1", "127.0.0.1:5000/kernels:v1", false, false},
		{"registry.example/k@sha256:" + someKey, "registry.example/k@sha256:" + someKey, false, true},
		{"registry.example/k:v1@sha256:" + someKey, "registry.example/k@sha256:" + someKey, false, true},
		{in: "registry.example/kernels"},
		{"https://cdn.example/aiter/set/", "https://cdn.example/aiter/set", false, false},
		{"https://bucket.example", "https://bucket.example", false, false},
		{"http://cdn.example/set@sha256:" + someKey, "http://cdn.example/set@sha256:" + someKey, false, true},
		{"file:///srv/a%20set", "file:///srv/a%20set", false, false},
		{in: "ftp://registry.example/kernels:v1"},
		{in: "https:///set"},
		{in: "https://user:password@cdn.example/set"},
		{in: "https://cdn.example/set?token=x"},
		{in: "https://cdn.example/set@sha256:12"},
		{in: "https://cdn.example/set@sha512:" + someKey + someKey},
		{in: "file://srv/set"},
		{in: "file://"},
		{in: "oci://"},
		{in: "kernels:v1"},
		{in: "registry.example/k@sha512:" + someKey + someKey},
	} {
		r, err := ParseReference(c.in)
		if (err == nil) != (c.want != "") || err == nil && (r.String() != c.want || r.plain != c.plain || r.Pinned() != c.pinned) {
			t.Errorf("%s: %v (plain %v, pinned %v), %v", c.in, r, r.plain, r.Pinned(), err)
		}
	}
}
