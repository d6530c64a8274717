package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const small = `{"x": [[[1,2,3,4]]], "weight": [[10,1]]}`

// shortLimits are the program's limits with times that a test can wait for.
func shortLimits() limits {
	l := defaultLimits()
	l.forHeader, l.forBody, l.forAnswer, l.forStop = time.Second, time.Second, time.Second, 10*time.Second
	return l
}

// server is a listening service that counts its requests.
type server struct {
	*service
	addr    string
	begun   atomic.Int64 // requests
	stop    context.CancelFunc
	stopped chan struct{} // closed when serve has returned err
	err     error
}

// start serves until the test ends.
func start(t *testing.T, l limits) *server {
	t.Helper()
	counts := metrics.New()
	reg, err := registry.Open(t.Context(), registry.Options{Observer: counts})
	if err != nil {
		t.Fatal(err)
	}
	svc, err := newService(reg, tensor.Host(), counts, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := svc.warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &server{service: svc, addr: listener.Addr().String(), stop: stop, stopped: make(chan struct{})}
	go func() {
		s.err = svc.serve(ctx, listener, s.counted(svc.routes()))
		close(s.stopped)
	}()
	t.Cleanup(func() {
		stop()
		<-s.stopped
		if err := errors.Join(s.err, reg.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// counted counts the requests that reach the service.
func (s *server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.begun.Add(1)
		h.ServeHTTP(w, r)
	})
}

// dial opens a connection and sends text.
func (s *server) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// waitBegun waits until n requests have reached the service.
func (s *server) waitBegun(t *testing.T, n int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.begun.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests reached the service, want %d", s.begun.Load(), n)
		}
	}
}

// post sends a request on a connection of its own.
func (s *server) post(body string) (code int, text string, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+s.addr+"/conv1d", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all) + resp.Header.Get("Retry-After"), err
}

func head(lines string) string {
	return "POST /conv1d HTTP/1.1\r\nHost: x\r\n" + lines + "\r\n\r\n"
}

// TestSlowAndEndless has clients whose request does not end. Each gets an answer and
// is disconnected, and its memory is freed.
func TestSlowAndEndless(t *testing.T) {
	l := shortLimits()
	l.body = 1 << 20
	s := start(t, l)
	for name, c := range map[string]struct {
		request string
		repeat  string // sent over and over
		pause   time.Duration
		code    int // 0: disconnected without an answer; -1: either
		within  time.Duration
	}{
		"slow header": {"POST /conv1d HTTP/1.1\r\n", "X: y\r\n", 50 * time.Millisecond, 0, 5 * time.Second},
		"no header":   {"", "", time.Second, 0, 5 * time.Second},
		"slow body":   {head("Content-Length: 1000"), " ", 50 * time.Millisecond, 408, 5 * time.Second},
		"silent body": {head("Content-Length: 1000") + "{", "", time.Second, 408, 5 * time.Second},
		"slow chunks": {head("Transfer-Encoding: chunked"), "1\r\n \r\n", 50 * time.Millisecond, 408, 5 * time.Second},
		"chunks without end": {head("Transfer-Encoding: chunked"), "10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n", 0,
			413, 5 * time.Second},
		"huge length": {head("Content-Length: 9223372036854775807"), "", time.Second, 413, time.Second},
		"huge header": {"POST /conv1d HTTP/1.1\r\nX: " + strings.Repeat("y", 64<<10), "", time.Second, 431, time.Second},
		"slow body of another handler": {"GET /ready HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", " ", 50 * time.Millisecond,
			-1, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := s.dial(t, c.request)
			go func() {
				for err := error(nil); err == nil; time.Sleep(c.pause) {
					_, err = io.WriteString(conn, c.repeat)
				}
			}()
			begin := time.Now()
			if err := conn.SetReadDeadline(begin.Add(c.within + 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			switch {
			case c.code >= 0 && (err == nil && resp.StatusCode != c.code || err != nil && c.code != 0):
				t.Errorf("got %v, %v, want %d", resp, err, c.code)
			case err == nil:
				_, _ = io.Copy(io.Discard, in) // until it is disconnected
			}
			if took := time.Since(begin); took > c.within {
				t.Errorf("took %s", took)
			}
		})
	}
	t.Cleanup(func() { s.checkFree(t) })
}

// checkFree checks that requests release their memory in time.
func (s *server) checkFree(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.memory.Acquire(ctx, s.limits.memory); err != nil {
		t.Fatalf("memory is held: %v", err)
	}
	s.memory.Release(s.limits.memory)
	if err := s.calls.Acquire(ctx, s.limits.calls); err != nil {
		t.Fatalf("calls are held: %v", err)
	}
	s.calls.Release(s.limits.calls)
}

// wide is a request whose answer is several times as long.
func wide(values int) string {
	return `{"weight": [[0.1234567]], "x": [[[` + strings.Repeat("1,", values-1) + `1]]]}`
}

// TestStalledReader has a client that sends a request and does not read the answer,
// which exceeds the kernel's buffers: the request must end all the same.
func TestStalledReader(t *testing.T) {
	s := start(t, shortLimits())
	body := wide(1 << 20)
	conn := s.dial(t, head(fmt.Sprintf("Content-Length: %d", len(body)))+body)
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	s.waitBegun(t, 1)
	s.checkFree(t)
}

// TestBusy checks that requests beyond the limits are answered with 503 and a time to try again, that
// requests within the limits are answered, and that the memory of a request stays
// within its reservation.
func TestBusy(t *testing.T) {
	l := shortLimits()
	l.calls, l.memory = 1, 96<<20
	s := start(t, l)
	var answered, busy atomic.Int64
	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			switch code, text, err := s.post(wide(100_000)); {
			case code == 200 && err == nil:
				answered.Add(1)
			case code == 503 && strings.Contains(text, "try again later") && strings.HasSuffix(text, "1"):
				busy.Add(1)
			default:
				t.Errorf("got %d %.100q, %v", code, text, err)
			}
		})
	}
	clients.Wait()
	if answered.Load() == 0 || busy.Load() == 0 {
		t.Errorf("%d answered, %d busy", answered.Load(), busy.Load())
	}
	s.checkFree(t)
	if code, text, err := s.post(wide(2 << 20)); code != 503 || err != nil {
		t.Errorf("a request larger than all memory: %d %s, %v", code, text, err)
	}
	if code, text, err := s.post(small); code != 200 || err != nil {
		t.Errorf("afterwards: %d %s, %v", code, text, err)
	}
}

// TestMemoryPerByte checks that a request allocates no more memory for each byte of
// its body than is reserved for it.
func TestMemoryPerByte(t *testing.T) {
	s := start(t, defaultLimits())
	for name, body := range map[string]string{
		"numbers":     wide(1 << 20),
		"empty lists": `{"weight": [[1]], "x": [[` + strings.Repeat("[],", 1<<19) + `[]]]}`,
		"lists":       `{"weight": [[1]], "x": [` + strings.Repeat("[[1]],", 1<<19) + `[[1]]]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		resp, err := http.Post("http://"+s.addr+"/conv1d", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
		runtime.ReadMemStats(&after)
		// A number of two bytes is also on the device, as input and output.
		perByte := (after.TotalAlloc-before.TotalAlloc)/uint64(len(body)) + 4
		if perByte > memoryPerByte {
			t.Errorf("%s: %d, %d bytes for each of the body's, and %d are reserved", name, resp.StatusCode, perByte, memoryPerByte)
		}
		t.Logf("%s: %d, %d bytes for each of %d", name, resp.StatusCode, perByte, len(body))
	}
}

// TestStopUnderLoad checks that each request that has reached the service gets an
// answer, and that a stop ends in time despite slow clients.
func TestStopUnderLoad(t *testing.T) {
	s := start(t, shortLimits())
	s.dial(t, "POST /conv1d HTTP/1.1\r\n")
	s.dial(t, head("Content-Length: 1000")+"{")
	stalled := wide(1 << 20)
	s.dial(t, head(fmt.Sprintf("Content-Length: %d", len(stalled)))+stalled)
	const slow = 2 // the header of the third never ends
	var answered, refused atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				code, text, err := s.post(wide(20_000))
				if err != nil { // the request has not reached the service
					refused.Add(1)
					return
				}
				answered.Add(1)
				if code != 200 && code != 503 {
					t.Errorf("got %d %.100q", code, text)
				}
			}
		})
	}
	s.waitBegun(t, slow+8)
	begin := time.Now()
	s.stop()
	<-s.stopped // with all memory
	if took := time.Since(begin); took > s.limits.forStop+10*time.Second {
		t.Errorf("the stop took %s", took)
	}
	clients.Wait()
	if begun := s.begun.Load() - slow; begun < 8 || answered.Load() != begun || refused.Load() != 8 {
		t.Errorf("of %d requests %d got an answer; %d were refused, expected 8", begun, answered.Load(), refused.Load())
	}
}

// TestStopCutsOff checks that a stop disconnects a client whose own deadlines are
// later than forStop.
func TestStopCutsOff(t *testing.T) {
	l := shortLimits()
	l.forBody, l.forStop = 20*time.Second, 200*time.Millisecond
	s := start(t, l)
	s.dial(t, head("Content-Length: 1000")+"{")
	s.waitBegun(t, 1)
	begin := time.Now()
	s.stop()
	<-s.stopped
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
}
