package fleet

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// tokens is a token server: it gives users tokens for a registry. The user "ci" may push, the user "node" may not.
type tokens struct {
	*httptest.Server
	a *authority

	mu     sync.Mutex
	life   time.Duration // of tokens
	scopes []string      // that node asked for
}

// newTokens starts a token server whose tokens the certificate of an authority signs.
func newTokens(t *testing.T, a *authority) *tokens {
	t.Helper()
	s := &tokens{a: a, life: time.Minute}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if password != "secret" {
			w.Header().Set("Www-Authenticate", `Basic realm="tokens"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		token, err := s.token(user, r.URL.Query()["scope"])
		if err == nil {
			err = json.NewEncoder(w).Encode(map[string]string{"token": token})
		}
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// token makes a token for scopes such as "repository:aiter/kernels:pull,push".
func (s *tokens) token(user string, scopes []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type access struct {
		Type    string   `json:"type"`
		Name    string   `json:"name"`
		Actions []string `json:"actions"`
	}
	granted := []access{}
	for _, scope := range scopes {
		part := strings.Split(scope, ":")
		if len(part) != 3 {
			return "", fmt.Errorf("scope %q", scope)
		}
		actions := strings.Split(part[2], ",")
		if user == "node" {
			s.scopes = append(s.scopes, scope)
			actions = slices.DeleteFunc(actions, func(a string) bool { return a != "pull" })
		}
		granted = append(granted, access{part[0], part[1], actions})
	}
	key, err := os.ReadFile(s.a.path("token.key"))
	cert, errCert := os.ReadFile(s.a.path("token.crt"))
	private, errKey := parsePrivate(key)
	if err := errors.Join(err, errCert, errKey); err != nil {
		return "", err
	}
	block, _ := pem.Decode(cert)
	end := time.Now().Add(s.life)
	header, errA := json.Marshal(map[string]any{"typ": "JWT", "alg": "ES256", "x5c": [][]byte{block.Bytes}})
	claims, errB := json.Marshal(map[string]any{
		"iss": "tokens", "aud": "registry", "sub": user, "jti": fmt.Sprint(end.UnixNano()), "access": granted,
		"iat": end.Add(-time.Hour).Unix(), "nbf": end.Add(-time.Hour).Unix(), "exp": end.Unix(),
	})
	text := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	x, y, errC := ecdsa.Sign(rand.Reader, private, sum[:])
	if err := errors.Join(errA, errB, errC); err != nil {
		return "", err
	}
	sig := append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

// TestTokens uses a registry that accepts the tokens of a token server only.
func TestTokens(t *testing.T) {
	f, program := prebuilt(t), testenv.Tool(t, "registry")
	private, public := newKeys(t)
	a := &authority{dir: t.TempDir()}
	a.issue(t, "ca")
	a.issue(t, "token")
	s := newTokens(t, a)
	r, err := testenv.StartRegistry(program, t.TempDir(), fmt.Sprintf(
		"auth: {token: {realm: %q, service: registry, issuer: tokens, rootcertbundle: %s}}\n", s.URL+"/token", a.path("ca.crt")), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	login := func(user string) {
		text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, r.Host, base64.StdEncoding.EncodeToString([]byte(user+":secret")))
		if err := os.WriteFile(filepath.Join(docker, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	login("ci")
	ref := r.Host + "/aiter/kernels:v1"
	push(t, ref, f.built, private)

	// A node pulls with a user who may not push, and asks for no more.
	login("node")
	n := newNode(t, f, "oci://"+ref, public)
	n.env["AITER_NO_COMPILE"] = "1"
	if _, _, _, err := n.start(); err != nil {
		t.Errorf("a pull with a token: %v", err)
	}
	const scope = "repository:aiter/kernels:pull"
	if len(s.scopes) == 0 || slices.ContainsFunc(s.scopes, func(got string) bool { return got != scope }) {
		t.Errorf("the node asked for %q, want %s only", s.scopes, scope)
	}
	_, err = Push(t.Context(), parse(t, r.Host+"/aiter/kernels:v2"), readOnly(t, f.built), nil, Options{})
	if causeOf(err) != jit.PullDenied {
		t.Errorf("a push of the user who may only pull: %v, want the cause %s", err, jit.PullDenied)
	}

	// The registry refuses a token that has expired.
	s.life = -10 * time.Minute
	n = newNode(t, f, "oci://"+ref, public)
	n.checkFailure(jit.PullDenied)
}
