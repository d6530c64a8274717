package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

// issue writes NAME.crt and NAME.key. The first certificate of an authority is its own.
func (a *authority) issue(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"registry.test"}, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if a.cert == nil {
		cert.IsCA, cert.KeyUsage, a.cert, a.key = true, x509.KeyUsageCertSign, cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	private, errKey := x509.MarshalPKCS8PrivateKey(key)
	err = errors.Join(err, errKey,
		os.WriteFile(a.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(a.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// install copies certificates to the folder of a host.
func (a *authority) install(t *testing.T, certs, host string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(certs, host), 0o755); err != nil {
		t.Fatal(err)
	}
	for to, from := range files {
		data, err := os.ReadFile(a.path(from))
		if err == nil {
			err = os.WriteFile(filepath.Join(certs, host, to), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCredentials uses a registry that demands a client certificate of its own authority and a password.
func TestCredentials(t *testing.T) {
	f, program := prebuilt(t), testenv.Tool(t, "registry")
	a := &authority{dir: t.TempDir()}
	for _, name := range []string{"ca", "server", "client"} {
		a.issue(t, name)
	}
	const entry = "user:$2b$04$.EnU3cb0PDSnj80yWZlz5OyCOwe3um5W9Qmvhab.8fTv.xAc.o7si\n" // of the password "secret"
	if err := os.WriteFile(a.path("htpasswd"), []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := testenv.StartRegistry(program, t.TempDir(), fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s}}\n", a.path("htpasswd")),
		fmt.Sprintf("  tls: {certificate: %s, key: %s, clientcas: [%s]}\n", a.path("server.crt"), a.path("server.key"), a.path("ca.crt")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	full, noClient := t.TempDir(), t.TempDir()
	a.install(t, full, r.Host, map[string]string{"ca.crt": "ca.crt", "client.cert": "client.crt", "client.key": "client.key"})
	a.install(t, noClient, r.Host, map[string]string{"ca.crt": "ca.crt"})
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	login := func(password string) {
		text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, r.Host, base64.StdEncoding.EncodeToString([]byte("user:"+password)))
		if err := os.WriteFile(filepath.Join(docker, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ref := parse(t, "oci+https://"+r.Host+"/aiter/kernels:v1")
	login("secret")
	rep, err := Push(t.Context(), ref, readOnly(t, f.built), nil, Options{Certs: full})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, certs, password, want string }{
		{"all", full, "secret", ""},
		{"wrong password", full, "guess", "401"},
		{"no client certificate", noClient, "secret", "tls: "},
		{"unknown authority", t.TempDir(), "secret", "tls: failed to verify certificate"},
	} {
		login(c.password)
		_, err := Copy(t.Context(), ref.at(rep.Digest), openCache(t, t.TempDir()), nil, Options{Certs: c.certs})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), c.password) {
			t.Errorf("%s: the error contains the password: %v", c.name, err)
		}
	}
	// A credential helper is a program that prints the password.
	helper := filepath.Join(t.TempDir(), "docker-credential-test")
	t.Setenv("PATH", filepath.Dir(helper)+":"+os.Getenv("PATH"))
	const script = "#!/bin/sh\nread -r host\necho '{\"ServerURL\":\"'$host'\",\"Username\":\"user\",\"Secret\":\"secret\"}'\n"
	config := fmt.Sprintf(`{"credHelpers":{%q:"test"}}`, r.Host)
	err = errors.Join(os.WriteFile(helper, []byte(script), 0o755), os.WriteFile(filepath.Join(docker, "config.json"), []byte(config), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), ref.at(rep.Digest), openCache(t, t.TempDir()), nil, Options{Certs: full}); err != nil {
		t.Errorf("with the password of a credential helper: %v", err)
	}
	if err := os.Remove(filepath.Join(docker, "config.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), ref.at(rep.Digest), openCache(t, t.TempDir()), nil, Options{Certs: full}); err == nil ||
		string(causeOf(err)) != "denied" {
		t.Errorf("without a password: %v", err)
	}
}
