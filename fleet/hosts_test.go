//go:build linux

package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/jit"
)

// bindHost reserves an address of this machine. Without listen it refuses connections.
func bindHost(t *testing.T) (host string, fd int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { _ = syscall.Close(fd) })
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var at syscall.Sockaddr
	if err == nil {
		at, err = syscall.Getsockname(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port), fd
}

// refusingHost returns an address that refuses connections.
func refusingHost(t *testing.T) string {
	t.Helper()
	host, _ := bindHost(t)
	return host
}

// fullHost returns an address that answers no request for a connection, as a firewall does: its queue is full.
func fullHost(t *testing.T) string {
	t.Helper()
	host, fd := bindHost(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 16 {
		c, err := net.DialTimeout("tcp", host, 100*time.Millisecond)
		var network net.Error
		if errors.As(err, &network) && network.Timeout() {
			return host
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Skip("this kernel accepts connections although the queue is full")
	return ""
}

// TestTries counts the connections of a pull to an address that refuses them. The pauses between them are bounded, so that the delay does
// not depend on the machine.
func TestTries(t *testing.T) {
	_, public := newKeys(t)
	host := refusingHost(t)
	s := newSource(parse(t, host+"/aiter/kernels:v1"), openCache(t, t.TempDir()), slog.New(slog.DiscardHandler), Options{Keys: public})
	var connects atomic.Int64
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{ConnectStart: func(string, string) { connects.Add(1) }})
	_, err := s.Pull(ctx, requests()[0])
	var pull *jit.PullError
	if !errors.As(err, &pull) || pull.Cause != jit.PullUnreachable || connects.Load() != tries {
		t.Errorf("%v after %d connections, want %s after %d", err, connects.Load(), jit.PullUnreachable, tries)
	}
	var longest time.Duration
	for try := 1; try < tries; try++ {
		window := firstPause << (try - 1)
		least, most := window, time.Duration(0)
		for range 1000 {
			pause, again := pauseAfter(nil, syscall.ECONNREFUSED, try)
			if !again {
				t.Fatal("a refused connection is not tried again")
			}
			least, most = min(least, pause), max(most, pause)
		}
		if least > window/20 || most < window*19/20 || most >= window { // full jitter
			t.Errorf("pauses after try %d: %s to %s, want random times from 0 to %s", try, least, most, window)
		}
		longest += most
	}
	if longest > time.Second {
		t.Errorf("the pauses are up to %s, want at most 1s of the 2s that a start may take longer", longest)
	}
}

// TestDeadHosts starts a node with a registry that cannot be reached. [TestFaults] has those that can.
func TestDeadHosts(t *testing.T) {
	f := prebuilt(t)
	_, public := newKeys(t)
	for _, c := range []struct {
		name  string
		host  func(*testing.T) string
		cause jit.PullCause
		most  time.Duration
	}{
		{"refused", refusingHost, jit.PullUnreachable, refusalDelay},
		{"no connection", fullHost, jit.PullTimeout, refusalDelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host := c.host(t)
			within(t, "delay of the start", c.most, func() time.Duration {
				n := newNode(t, f, "oci://"+host+"/aiter/kernels:v1", public)
				return n.checkFailure(c.cause)
			})
		})
	}
}

// TestFaultCompiles checks that a node with a compiler goes on after a fault.
func TestFaultCompiles(t *testing.T) {
	f := prebuilt(t)
	_, public := newKeys(t)
	host := refusingHost(t)
	n := newNode(t, f, "oci://"+host+"/aiter/kernels:v1", public)
	e, _, took, err := n.start()
	if err != nil || e.compiles == 0 || len(e.pulls) == 0 || took > compileTime {
		t.Errorf("%v, %d compiles, pulls %v, %s", err, e.compiles, e.pulls, took)
	}
	if got := e.cause(); got != jit.PullUnreachable {
		t.Errorf("cause %q, pulls %v, want %s", got, e.pulls, jit.PullUnreachable)
	}
}

// TestDeadProxy pulls through proxies that refuse connections or say nothing.
func TestDeadProxy(t *testing.T) {
	silent := newProxy(t, "127.0.0.1:1")
	silent.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		<-r.Context().Done()
		return true
	})
	refusing := refusingHost(t)
	for _, c := range []struct {
		name, host, want string
		most             time.Duration
	}{
		{"refuses", refusing, "proxyconnect tcp: dial tcp " + refusing + ": connect: connection refused", refusalDelay},
		{"silent", silent.Host, errIdle.Error(), hangDelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			within(t, "delay", c.most, func() time.Duration {
				begin := time.Now()
				stderr, err := proxyChild(t, "registry.test/aiter/kernels@sha256:"+someKey, "", "HTTPS_PROXY=http://"+c.host)
				if err == nil || !strings.Contains(stderr, c.want) {
					t.Errorf("%v, %s; want %q", err, stderr, c.want)
				}
				return time.Since(begin)
			})
		})
	}
}
