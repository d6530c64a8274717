package fleet

import (
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
