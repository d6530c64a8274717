package fleet

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// httpProxy is a proxy in front of the registries of a company, as Squid is: it resolves names, and demands a password.
type httpProxy struct {
	Host string
	auth string // value of Proxy-Authorization, "" for none

	names  map[string]string // "registry.test:443" -> address
	mu     sync.Mutex
	served []string // "CONNECT registry.test:443"
}

func newHTTPProxy(t *testing.T, user, password string, names map[string]string) *httpProxy {
	t.Helper()
	p := &httpProxy{names: names}
	if user != "" {
		p.auth = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.Host = strings.TrimPrefix(server.URL, "http://")
	return p
}

// ServeHTTP implements [http.Handler].
func (p *httpProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.served = append(p.served, r.Method+" "+r.Host)
	p.mu.Unlock()
	if p.auth != "" && r.Header.Get("Proxy-Authorization") != p.auth {
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	to, known := p.names[r.Host]
	switch {
	case !known:
		w.WriteHeader(http.StatusBadGateway)
	case r.Method == http.MethodConnect:
		p.tunnel(w, to)
	default:
		(&httputil.ReverseProxy{Rewrite: func(q *httputil.ProxyRequest) {
			q.Out.URL.Scheme, q.Out.URL.Host = "http", to
			q.Out.Header.Del("Proxy-Authorization")
		}}).ServeHTTP(w, r)
	}
}

// tunnel connects a client with an address.
func (p *httpProxy) tunnel(w http.ResponseWriter, to string) {
	server, err := net.Dial("tcp", to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		_, _ = io.Copy(server, buffered)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
}

// taken returns the requests since the last call.
func (p *httpProxy) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Compact(p.served)
	p.served = nil
	return list
}

// proxyChild pulls in a process of its own, because Go reads the variables of proxies once. No other such variables are set.
func proxyChild(t *testing.T, ref, certs string, env ...string) (stderr string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(append(cmd.Env, "AITER_TEST_PULL="+ref, "AITER_TEST_CACHE="+t.TempDir(), "AITER_TEST_CERTS="+certs), env...)
	var text bytes.Buffer
	cmd.Stderr = &text
	err = cmd.Run()
	return text.String(), err
}

// TestHTTPProxy pulls from registries that only a proxy reaches.
func TestHTTPProxy(t *testing.T) {
	f, plain := prebuilt(t), startRegistry(t)
	a := &authority{dir: t.TempDir()}
	a.issue(t, "ca")
	a.issue(t, "server")
	secure, err := testenv.StartRegistry(testenv.Tool(t, "registry"), t.TempDir(), "",
		fmt.Sprintf("  tls: {certificate: %s, key: %s}\n", a.path("server.crt"), a.path("server.key")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(secure.Stop)
	certs := t.TempDir()
	for _, host := range []string{secure.Host, "registry.test"} {
		a.install(t, certs, host, map[string]string{"ca.crt": "ca.crt"})
	}
	rep, err := Push(t.Context(), parse(t, "oci+https://"+secure.Host+"/aiter/kernels:v1"), readOnly(t, f.built), nil, Options{Certs: certs})
	if err != nil {
		t.Fatal(err)
	}
	push(t, plain.Host+"/aiter/kernels:v1", f.built, "")
	names := map[string]string{"registry.test:443": secure.Host, "registry.test": plain.Host}
	p := newHTTPProxy(t, "user", "secret", names)
	const tunnel, wrong = "CONNECT registry.test:443", "gue55"
	set := "registry.test/aiter/kernels@" + rep.Digest
	for _, c := range []struct {
		name, ref string
		env       []string
		want      string   // in the error
		served    []string // by the proxy
	}{
		{"TLS", set, []string{"HTTPS_PROXY=http://user:secret@" + p.Host, "HTTP_PROXY=http://127.0.0.1:1"}, "", []string{tunnel}},
		{"name in small letters", set, []string{"https_proxy=http://user:secret@" + p.Host}, "", []string{tunnel}},
		{
			"HTTP", "oci+http://" + set, []string{"HTTP_PROXY=http://user:secret@" + p.Host, "HTTPS_PROXY=http://127.0.0.1:1"}, "",
			[]string{"GET registry.test"},
		},
		{
			"wrong password", set, []string{"HTTPS_PROXY=http://user:" + wrong + "@" + p.Host},
			"proxy " + p.Host + ": status 407, Proxy Authentication Required", []string{tunnel},
		},
		{"no password", set, []string{"HTTPS_PROXY=http://" + p.Host}, "HTTPS_PROXY needs a user and a password", []string{tunnel}},
		{
			"no password, HTTP", "oci+http://" + set, []string{"HTTP_PROXY=http://" + p.Host}, "status 407, Proxy Authentication Required",
			[]string{"GET registry.test"},
		},
		{
			"unknown host", "elsewhere.test/aiter/kernels@" + rep.Digest, []string{"HTTPS_PROXY=http://user:secret@" + p.Host},
			"proxy " + p.Host + ": status 502, Bad Gateway", []string{"CONNECT elsewhere.test:443"},
		},
		{
			"excluded", set, []string{"HTTPS_PROXY=http://user:secret@" + p.Host, "NO_PROXY=registry.example,.test"},
			"dial tcp: lookup registry.test", nil,
		},
		{
			"other hosts are excluded", set, []string{"HTTPS_PROXY=http://user:secret@" + p.Host, "NO_PROXY=registry.example"}, "",
			[]string{tunnel},
		},
		{
			"loopback needs none", "oci+https://" + secure.Host + "/aiter/kernels@" + rep.Digest,
			[]string{"HTTPS_PROXY=http://user:secret@" + p.Host}, "", nil,
		},
	} {
		stderr, err := proxyChild(t, c.ref, certs, c.env...)
		leaks := strings.Contains(stderr, wrong) || strings.Contains(stderr, "secret")
		if (err == nil) != (c.want == "") || !strings.Contains(stderr, c.want) || leaks {
			t.Errorf("%s: %v, %s; want %q and no password", c.name, err, stderr, c.want)
		}
		if got := p.taken(); !slices.Equal(got, c.served) {
			t.Errorf("%s: the proxy served %q, want %q", c.name, got, c.served)
		}
	}
}
