package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/aiter-go/aiter/internal/servers"
)

// pullTimeouts suit the start of a program.
func pullTimeouts() timeouts {
	return timeouts{connect: time.Second, headers: 5 * time.Second, idle: 5 * time.Second}
}

// pushTimeouts suit CI, where a registry stores large blobs.
func pushTimeouts() timeouts {
	return timeouts{connect: 10 * time.Second, headers: 2 * time.Minute, idle: time.Minute}
}

const (
	maxManifest  = 4 << 20 // bytes of a manifest
	maxHeaders   = 64 << 10
	maxRedirects = 5
	maxPages     = 4 // of a list of referrers
)

// newClient returns the client of a reference. Credentials are those of docker: DOCKER_CONFIG or ~/.docker/config.json, with its
// credential helpers. Proxies are those of HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
func newClient(ref Reference, o Options, limits timeouts) (*auth.Client, error) {
	config, err := tlsConfig(o.Certs, ref.ref.Host())
	if err != nil {
		return nil, err
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("the credentials of docker: %w", err)
	}
	client := &auth.Client{
		Client:     &http.Client{Transport: transport(config, limits), CheckRedirect: checkRedirect},
		Credential: credentials.Credential(store),
		Cache:      auth.NewCache(),
	}
	client.SetUserAgent("aiter")
	if servers.IsLoopback(ref.ref.Host()) { // its token server is on this machine too
		client.BlockedRealmPrefixes = []netip.Prefix{}
	}
	return client, nil
}

// get reads a URL with one request.
func get(ctx context.Context, client remote.Client, url string) (io.ReadCloser, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest)
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, nil, &statusError{url, resp.StatusCode}
	}
	return resp.Body, resp.Header, nil
}

func transport(config *tls.Config, limits timeouts) http.RoundTripper {
	dialer := &net.Dialer{Timeout: limits.connect, KeepAlive: 15 * time.Second}
	return retrying{watched{headers: limits.headers, idle: limits.idle, base: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: checkProxy,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    limits.headers,
		ResponseHeaderTimeout:  limits.headers,
		MaxResponseHeaderBytes: maxHeaders,
		DisableCompression:     true,  // digests are those of the stored bytes
		ForceAttemptHTTP2:      false, // errors of HTTP/2 lack the reason of a refused client certificate
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConnsPerHost:    downloads,
	}}}
}

// checkProxy reports a proxy that opens no connection to a registry.
func checkProxy(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{proxy.Host, resp.StatusCode}
}

// checkRedirect removes the credentials from a request to another host, port or scheme, and refuses to leave TLS.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects from %s://%s, the last one to %s://%s; name the server that has the set in the reference",
			maxRedirects, first.Scheme, first.Host, req.URL.Scheme, req.URL.Host)
	case first.Scheme == "https" && req.URL.Scheme != "https":
		return fmt.Errorf("refused redirect from https://%s to %s://%s, which has no TLS; let the server redirect to https only",
			first.Host, req.URL.Scheme, req.URL.Host)
	case first.Scheme != req.URL.Scheme || first.Host != req.URL.Host:
		req.Header.Del("Authorization")
		req.Header.Del("Cookie")
	}
	return nil
}

// tlsConfig returns the TLS settings of a host: the certificate authorities of the system and those of ca.crt, and
// the client certificate client.cert with client.key.
func tlsConfig(certs, host string) (*tls.Config, error) {
	dir := filepath.Join(certs, host)
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	switch {
	case err == nil:
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s has no certificate in PEM", filepath.Join(dir, "ca.crt"))
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	cert, key := filepath.Join(dir, "client.cert"), filepath.Join(dir, "client.key")
	if _, err := os.Stat(cert); err == nil {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate of %s: %w", host, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// scoped returns a context in which the client requests tokens for these actions on the reference's repository.
func scoped(ctx context.Context, ref Reference, actions ...string) context.Context {
	if ref.folder != "" {
		return ctx
	}
	return auth.AppendRepositoryScope(ctx, ref.ref, actions...)
}
