package buildfarm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/aiter-go/aiter/jit"
)

const (
	connectTimeout = 2 * time.Second
	maxMessage     = 16 << 20 // bytes that this client accepts in a message
	tries          = 3
	firstPause     = 100 * time.Millisecond // the longest pause before the second try; it doubles
)

// dial returns a connection, which is opened by the first call.
func (x *executor) dial(transport credentials.TransportCredentials) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent("aiter"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
	}
	if x.token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(x.token)))
	}
	return grpc.NewClient("passthrough:///"+x.host, options...)
}

// bearer is the path of a file with a token. The file is read for each call, so that a new token needs no restart.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	data, err := os.ReadFile(string(b))
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, "AITER_JIT_EXECUTOR_TOKEN: "+err.Error())
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(data))}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Without TLS the farm is on this machine.
func (bearer) RequireTransportSecurity() bool { return false }

// tlsConfig returns the TLS settings: the certificate authorities of the system and of ca.crt in the folder, and the client
// certificate client.cert with client.key there. The folder is "" for none.
func (x *executor) tlsConfig(dir string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		x.needsCertificate.Store(true)
		return new(tls.Certificate), nil // connect without one
	}
	if dir == "" {
		return config, nil
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	switch {
	case err == nil:
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("ca.crt has no certificate in PEM")
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	cert, key := filepath.Join(dir, "client.cert"), filepath.Join(dir, "client.key")
	if _, missing := os.Stat(cert); missing == nil {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return nil, err
		}
		// The files are read for each connection, so that a new certificate needs no restart.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
	}
	return config, nil
}

// call makes a call, up to three times if the error is transient. The time limit is the wait, at most callWait. what names the call in
// errors.
func call[R any](ctx context.Context, x *executor, what string, f func(context.Context) (R, error)) (r R, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(x.wait, callWait))
	defer cancel()
	for try := 1; ; try++ {
		if r, err = f(ctx); err == nil {
			return r, nil
		}
		if try == tries || !isTransient(err) {
			return r, x.faultOf(what, err)
		}
		pause := time.NewTimer(rand.N(firstPause << (try - 1)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return r, x.faultOf(what, err)
		case <-pause.C:
		}
	}
}

// isTransient reports whether the same call may succeed soon.
func isTransient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return true
	}
	return false
}

// faultOf returns the error of a failed call, with its cause.
func (x *executor) faultOf(what string, err error) error {
	var known *jit.ExecutorError
	if errors.As(err, &known) {
		return err
	}
	cause := jit.ExecutorServer
	switch status.Code(err) {
	case codes.Unavailable, codes.Aborted, codes.ResourceExhausted:
		cause = jit.ExecutorUnreachable
	case codes.DeadlineExceeded:
		cause = jit.ExecutorTimeout
	case codes.Unauthenticated, codes.PermissionDenied:
		cause = jit.ExecutorDenied
	case codes.Canceled:
		cause = jit.ExecutorCanceled
	}
	if errors.Is(err, context.DeadlineExceeded) {
		cause = jit.ExecutorTimeout
	}
	// A server of TLS 1.3 refuses a client after the client's part of the handshake, so the error may only name a closed connection.
	if cause == jit.ExecutorUnreachable && x.needsCertificate.Load() {
		const hint = "the server requests a client certificate: put client.cert and client.key into the folder AITER_JIT_EXECUTOR_CERTS"
		err = fmt.Errorf("%w; %s", err, hint)
	}
	return &jit.ExecutorError{Cause: cause, Err: fmt.Errorf("%s at %s: %w", what, x.host, err)}
}
