// Package buildfarm runs compiles and links on the servers of a build farm, through version 2 of the Bazel Remote Execution API.
// Buildbarn, BuildGrid, NativeLink, BuildBox and others serve it. Only this package imports gRPC. A farm has workers, which run the
// commands, and a cache of results; an execution is one action that a client sends to the farm.
//
// A machine that loads a result of the farm runs its code. This package checks that blobs have their declared digests, and package jit
// checks which files and which toolchain a worker used; neither protects against a malicious farm. Use TLS, and give write access to
// the farm only to machines that may publish code.
package buildfarm

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/servers"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
)

// DefaultWait is the default of AITER_JIT_EXECUTOR_WAIT, the longest time without an answer of the farm.
const DefaultWait = 2 * time.Minute

// executor runs commands on one farm.
type executor struct {
	conn     *grpc.ClientConn
	host     string
	instance string
	wait     time.Duration // bounds each call, and the time without progress
	platform []property
	token    string // file with a bearer token, "" for none
	store    *cache.Dir
	log      *slog.Logger

	suspension *servers.Suspension

	needsCertificate atomic.Bool // the server requests a client certificate, and none is configured

	mu       sync.Mutex
	progress time.Time // of the last answer to an execution
	caps     *capabilities
}

// property is a property of the platform that workers must have.
type property struct{ name, value string }

var (
	_ jit.Executor     = (*executor)(nil)
	_ jit.OpenExecutor = Open
)

// Open returns the executor at an address: grpcs://HOST:PORT/INSTANCE, or grpc:// without TLS on loopback. It opens no connection.
// The variables AITER_JIT_EXECUTOR_WAIT, _PLATFORM, _TOKEN and _CERTS configure it. The error is an *EnvironmentError of package registry.
func Open(o jit.ExecutorOptions) (jit.Executor, error) {
	x := &executor{wait: DefaultWait, token: o.Getenv("AITER_JIT_EXECUTOR_TOKEN"), store: o.Cache, log: o.Logger}
	fail := func(name, value string, err error) (jit.Executor, error) {
		return nil, &settings.EnvironmentError{Name: name, Value: value, Err: err}
	}
	secure, err := x.parse(o.Address)
	if err != nil {
		return fail("AITER_JIT_EXECUTOR", o.Address, err)
	}
	x.suspension = newSuspension(x)
	if v := o.Getenv("AITER_JIT_EXECUTOR_WAIT"); v != "" {
		if x.wait, err = time.ParseDuration(v); err != nil || x.wait <= 0 {
			return fail("AITER_JIT_EXECUTOR_WAIT", v, errWait)
		}
	}
	if v := o.Getenv("AITER_JIT_EXECUTOR_PLATFORM"); v != "" {
		if x.platform, err = parsePlatform(v); err != nil {
			return fail("AITER_JIT_EXECUTOR_PLATFORM", v, err)
		}
	}
	transport := insecure.NewCredentials()
	if secure {
		config, err := x.tlsConfig(o.Getenv("AITER_JIT_EXECUTOR_CERTS"))
		if err != nil {
			return fail("AITER_JIT_EXECUTOR_CERTS", o.Getenv("AITER_JIT_EXECUTOR_CERTS"), err)
		}
		transport = credentials.NewTLS(config)
	}
	if x.token != "" {
		if _, err := os.Stat(x.token); err != nil {
			return fail("AITER_JIT_EXECUTOR_TOKEN", x.token, err)
		}
	}
	x.conn, err = x.dial(transport)
	return x, err
}

var (
	errWait    = errors.New("expected a time above 0, such as 2m")
	errAddress = errors.New("expected grpcs://HOST:PORT or grpcs://HOST:PORT/INSTANCE")
	errPlain   = errors.New("grpc:// has no TLS and is for a farm on this machine; use grpcs://")
)

// parse reads the address and reports whether it requires TLS.
func (x *executor) parse(address string) (secure bool, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "grpc" && u.Scheme != "grpcs" || u.Port() == "" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return false, errAddress
	}
	if u.Scheme == "grpc" && !servers.IsLoopback(u.Hostname()) {
		return false, errPlain
	}
	x.host, x.instance = u.Host, strings.Trim(u.Path, "/")
	return u.Scheme == "grpcs", nil
}

// parsePlatform reads NAME=VALUE,NAME=VALUE.
func parsePlatform(list string) ([]property, error) {
	var out []property
	for _, item := range strings.Split(list, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("expected NAME=VALUE,..., got %q", item)
		}
		out = append(out, property{name, value})
	}
	return out, nil
}
