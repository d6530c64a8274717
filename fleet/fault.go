package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

// DamageError reports content that differs from its descriptor, or that does not have the form of a set.
type DamageError struct{ err error }

func (e *DamageError) Error() string { return e.err.Error() }

// Unwrap returns the difference.
func (e *DamageError) Unwrap() error { return e.err }

func damaged(format string, args ...any) error { return &DamageError{fmt.Errorf(format, args...)} }

// shortError reports a blob that ended early. Pulling it again may help.
type shortError struct {
	digest    string
	got, want int64 // bytes
}

func (e *shortError) Error() string {
	return fmt.Sprintf("%s ended after %d of %d bytes", e.digest, e.got, e.want)
}

// statusError reports an answer with a status other than 200.
type statusError struct {
	url  string
	code int
}

func (e *statusError) Error() string {
	var hint string
	switch causeOfStatus(e.code) {
	case jit.PullDenied:
		hint = "; log in to the server (docker login), as a user who may read the repository"
	case jit.PullMissing:
		hint = "; check the reference, and whether the set was pushed there"
	case jit.PullLimited, jit.PullServer:
		hint = "; try again later"
	default:
		hint = fmt.Sprintf("; expected status %d: check that the server has the API of a container registry, or serves the folder",
			http.StatusOK)
	}
	return fmt.Sprintf("GET %s: status %d, %s%s", e.url, e.code, http.StatusText(e.code), hint)
}

// proxyError reports a proxy that opens no connection.
type proxyError struct {
	host string
	code int
}

func (e *proxyError) Error() string {
	hint := ""
	if e.code == http.StatusProxyAuthRequired {
		hint = "; HTTPS_PROXY needs a user and a password: http://USER:PASSWORD@" + e.host
	}
	return fmt.Sprintf("proxy %s: status %d, %s%s", e.host, e.code, http.StatusText(e.code), hint)
}

// isNotFound reports whether a repository does not have something.
func isNotFound(err error) bool {
	var status *statusError
	return errors.Is(err, errdef.ErrNotFound) || errors.Is(err, fs.ErrNotExist) ||
		errors.As(err, &status) && status.code == http.StatusNotFound
}

// isBroken reports whether a connection was refused or broke. A time limit is neither.
func isBroken(err error) bool {
	var short *shortError
	var timeout net.Error
	if errors.Is(err, errIdle) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout() {
		return false
	}
	for _, broken := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return errors.As(err, &short)
}

// causeOf returns the kind of a failed pull.
func causeOf(err error) jit.PullCause {
	var answer *errcode.ErrorResponse
	var status *statusError
	var unsigned *UntrustedError
	var broken *DamageError
	var storage *cache.AccessError
	var proxy *proxyError
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errIdle), errors.As(err, &network) && network.Timeout():
		return jit.PullTimeout
	case errors.As(err, &unsigned):
		return jit.PullUntrusted
	case errors.As(err, &broken):
		return jit.PullDamaged
	case errors.As(err, &storage), errors.Is(err, syscall.ENOSPC), errors.Is(err, os.ErrPermission):
		return jit.PullStorage
	case errors.As(err, &proxy):
		return causeOfStatus(proxy.code)
	case errors.As(err, &answer):
		return causeOfStatus(answer.StatusCode)
	case errors.As(err, &status):
		return causeOfStatus(status.code)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return jit.PullDenied
	case isNotFound(err):
		return jit.PullMissing
	case isBroken(err), errors.As(err, &network):
		return jit.PullUnreachable
	}
	return jit.PullOther
}

func causeOfStatus(status int) jit.PullCause {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return jit.PullDenied
	case status == http.StatusNotFound:
		return jit.PullMissing
	case status == http.StatusTooManyRequests:
		return jit.PullLimited
	case status >= 500:
		return jit.PullServer
	}
	return jit.PullOther
}
