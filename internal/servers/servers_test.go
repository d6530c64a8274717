package servers_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/servers"
)

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:80": true, "127.0.0.1": true, "127.8.9.1:5000": true, "::1": true, "[::1]": true, "[::1]:80": true,
		"": false, "example.com": false, "localhost.example.com:80": false, "10.0.0.1:80": false, "::2": false,
	} {
		if got := servers.IsLoopback(host); got != want {
			t.Errorf("IsLoopback(%q) = %v", host, got)
		}
	}
}

func TestSuspension(t *testing.T) {
	store, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	open := func(server string) *servers.Suspension {
		var l cache.Lines
		l.Add("server", server)
		return servers.NewSuspension(store, l.Key(), slog.New(slog.DiscardHandler))
	}
	check := func(what string, s *servers.Suspension, want string) {
		t.Helper()
		got := ""
		if f, suspended := s.Active(); suspended {
			got = f.Cause + ": " + f.Err.Error()
		}
		if got != want {
			t.Errorf("%s: the fault is %q, want %q", what, got, want)
		}
	}
	fault := func(age time.Duration) servers.Fault {
		return servers.Fault{Time: time.Now().Add(-age), Cause: "timeout", Err: errors.New("no answer")}
	}
	a, b, other := open("a"), open("a"), open("other")
	check("before a fault", a, "")
	a.Suspend(fault(0))
	check("its own fault", a, "timeout: no answer")
	check("a fault of another process", b, "")
	a.Suspend(fault(servers.SuspensionTime))
	check("after a minute", a, "")
	a.Share(fault(0))
	check("a shared fault", b, "timeout: no answer")
	check("another server", other, "")
	b.Forget()
	check("a forgotten fault", a, "")
	a.Share(fault(servers.SuspensionTime))
	check("a shared fault after a minute", b, "")
	a.Share(fault(-time.Hour))
	check("a fault in the future", b, "")
}
