package buildfarm_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/aiter-go/aiter/jit"
)

// TestToken uses a farm that requires a token. A new token in the file is used without a restart.
func TestToken(t *testing.T) {
	p := newProxy(t, startFarm(t, "").Host)
	p.set(fault{call: func(ctx context.Context, _ string) error {
		md, _ := metadata.FromIncomingContext(ctx)
		if got := md.Get("authorization"); !slices.Equal(got, []string{"Bearer secret"}) {
			return status.Error(codes.Unauthenticated, "wrong token")
		}
		return nil
	}})
	file := filepath.Join(t.TempDir(), "token")
	for _, c := range []struct {
		token string
		cause jit.ExecutorCause
	}{{"secret\n", ""}, {"old", jit.ExecutorDenied}} {
		if err := os.WriteFile(file, []byte(c.token), 0o600); err != nil {
			t.Fatal(err)
		}
		x := newClient(t, "grpc://"+p.host)
		x.env["AITER_JIT_EXECUTOR_TOKEN"] = file
		x.build(small())
		if causes := x.failures(); c.cause == "" && len(causes) > 0 || c.cause != "" && !slices.Contains(causes, c.cause) {
			t.Errorf("token %q: causes %q, want %q", c.token, causes, c.cause)
		}
	}
}

// TestTLS uses a farm that requires a client certificate. The client has all files that it needs, or only some.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	authority := newCertificate(t, dir, "ca", nil)
	server := newCertificate(t, dir, "server", authority)
	newCertificate(t, dir, "client", authority)
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	p := newProxy(t, startFarm(t, "").Host, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{*server}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	for _, c := range []struct {
		files  string // in AITER_JIT_EXECUTOR_CERTS
		reason string // in the warning, "" for success
	}{
		{"ca.crt client.cert client.key", ""},
		{"ca.crt", "put client.cert and client.key into the folder AITER_JIT_EXECUTOR_CERTS"},
		{"client.cert client.key", "tls: failed to verify certificate"},
	} {
		certs := t.TempDir()
		for name := range strings.FieldsSeq(c.files) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err = errors.Join(err, os.WriteFile(filepath.Join(certs, name), data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		x := newClient(t, "grpcs://"+p.host)
		x.env["AITER_JIT_EXECUTOR_CERTS"] = certs
		x.build(small())
		if causes := x.failures(); (len(causes) == 0) != (c.reason == "") {
			t.Errorf("%s: causes %q, want success: %t", c.files, causes, c.reason == "")
		}
		if !strings.Contains(x.log.String(), c.reason) {
			t.Errorf("%s: the warning has no %q:\n%s", c.files, c.reason, x.log.String())
		}
	}
}

// newCertificate writes NAME.crt, NAME.cert and NAME.key, signed by an authority, or by itself.
func newCertificate(t *testing.T, dir, name string, authority *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: authority == nil, BasicConstraintsValid: true,
	}
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, errA := x509.ParseCertificate(cert)
	private, errB := x509.MarshalPKCS8PrivateKey(key)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	err = errors.Join(errA, errB,
		os.WriteFile(filepath.Join(dir, name+".crt"), text, 0o600), os.WriteFile(filepath.Join(dir, name+".cert"), text, 0o600),
		os.WriteFile(filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key, Leaf: leaf}
}
