package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
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

	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// shortLimits returns the program's limits, with time limits that a test can wait for.
func shortLimits() limits {
	l := defaultLimits(tensor.Host())
	l.forHeader, l.forBody, l.forAnswer, l.forStop, l.drain = time.Second, time.Second, time.Second, 10*time.Second, 0
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
	conn    net.Conn // of halfSent
}

// start makes a service, waits until it is ready, and serves until the test ends.
func start(t *testing.T, l limits, o registry.Options) *server {
	t.Helper()
	svc := open(t, l, o)
	if err := svc.warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return listen(t, svc)
}

// listen serves on a free port until the test ends.
func listen(t *testing.T, svc *service) *server {
	t.Helper()
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
		if s.err != nil {
			t.Error(s.err)
		}
	})
	return s
}

// counted returns a handler that counts the requests before it passes them to h.
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

func head(lines string) string {
	return "POST /v1/conv1d HTTP/1.1\r\nHost: x\r\n" + lines + "\r\n\r\n"
}

// typed returns the head of a request with a body of n bytes in the safetensors format.
func typed(n int) string {
	return head(fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d", api.Safetensors, n))
}

// TestSlowAndEndless has clients that send requests slowly, without end, or with more bytes than
// allowed. Each is disconnected in time, most of them after an answer, and the memory of its request
// is freed.
func TestSlowAndEndless(t *testing.T) {
	l := shortLimits()
	l.body = 1 << 20
	s := start(t, l, registry.Options{})
	for name, c := range map[string]struct {
		request string
		repeat  string // sent over and over
		pause   time.Duration
		code    int // 0: disconnected without an answer; -1: either
		within  time.Duration
	}{
		"slow header": {"POST /v1/conv1d HTTP/1.1\r\n", "X: y\r\n", 50 * time.Millisecond, 0, 5 * time.Second},
		"no header":   {"", "", time.Second, 0, 5 * time.Second},
		"slow body":   {typed(1000), " ", 50 * time.Millisecond, 408, 5 * time.Second},
		"silent body": {typed(1000) + "{", "", time.Second, 408, 5 * time.Second},
		"no length": {head("Transfer-Encoding: chunked\r\nContent-Type: " + string(api.NPY)), "1\r\n \r\n", 50 * time.Millisecond,
			411, 5 * time.Second},
		"a long body": {typed(1<<20 + 1), strings.Repeat(" ", 1<<16), 0, 413, 5 * time.Second},
		"huge length": {head("Content-Length: 9223372036854775807\r\nContent-Type: " + string(api.NPY)), "", time.Second, 413, 5 * time.Second},
		"huge header": {"POST /v1/conv1d HTTP/1.1\r\nX: " + strings.Repeat("y", 64<<10), "", time.Second, 431, 5 * time.Second},
		"slow body of another handler": {"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", " ", 50 * time.Millisecond,
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

// checkFree checks that all requests release their memory within some seconds.
func (s *server) checkFree(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.memory.Acquire(ctx, s.limits.memory); err != nil {
		t.Fatalf("memory is held: %v", err)
	}
	s.memory.Release(s.limits.memory)
}

// large returns the body of a request with n bytes of x. The answer has about as many bytes.
func large(t *testing.T, n int64) []byte {
	t.Helper()
	return encode(t, api.Safetensors, set{api.X: pattern(t, tensor.Float32, 0, n/8, 2)})
}

// TestStalledReader has a client that sends a request and does not read the answer. The
// answer does not fit into the kernel's buffers, but the request must end in time.
func TestStalledReader(t *testing.T) {
	l := shortLimits()
	l.forBody = time.Minute // 16 MiB under the race detector take seconds
	s := start(t, l, registry.Options{})
	body := large(t, 16<<20)
	conn := s.dial(t, typed(len(body))+string(body))
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, first); err != nil || string(first) != "HTTP/1.1 200" {
		t.Fatalf("got %q, %v", first, err)
	}
	if s.memory.TryAcquire(s.limits.memory) {
		t.Error("all memory is free while an answer is written")
	}
	s.checkFree(t)
}

// TestBusy checks that requests beyond the limits are answered with 503 and a time to try again, that
// requests within the limits are answered, and that all memory is free afterwards.
func TestBusy(t *testing.T) {
	l := shortLimits()
	l.memory, l.forBody = 32<<20, time.Minute // a hundred bodies at once under the race detector take seconds
	s := start(t, l, registry.Options{})
	body := large(t, 1<<20)
	var answered, busy, cut atomic.Int64
	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			switch code, _, text, err := post(client, s.addr, string(api.Safetensors), "", "", body); {
			case code == 200 && err == nil:
				answered.Add(1)
			case code == 503 && strings.Contains(string(text), "try again later"):
				busy.Add(1)
			case code == 0 && err != nil:
				// The service answers before the end of the body, and closes the connection half a second later. A client that is still
				// writing, on a loaded machine, may get an error of the connection instead of the answer. net/http has several.
				cut.Add(1)
			default:
				t.Errorf("got %d %.100q, %v", code, text, err)
			}
		})
	}
	clients.Wait()
	if answered.Load() == 0 || busy.Load() == 0 || cut.Load() > 50 {
		t.Errorf("%d answered, %d busy, %d without an answer", answered.Load(), busy.Load(), cut.Load())
	}
	s.checkFree(t)
	if code, _, text := s.send(t, string(api.Safetensors), "", "", large(t, 6<<20)); code != 413 {
		t.Errorf("a request that needs more than all memory: %d %s", code, text)
	}
	if code, _, text := s.send(t, string(api.Safetensors), "", "", large(t, 1<<10)); code != 200 {
		t.Errorf("afterwards: %d %s", code, text)
	}
}

// TestRefusal checks the headers of refusals, and the code of a call that takes too long.
func TestRefusal(t *testing.T) {
	l := shortLimits()
	l.queue, l.forCall = 0, 0
	s := start(t, l, registry.Options{})
	post := func() *http.Response {
		resp, err := http.Post("http://"+s.addr+"/v1/conv1d", string(api.Safetensors), bytes.NewReader(large(t, 1<<10)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	if resp := post(); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("with a full queue: %s, %v", resp.Status, resp.Header)
	}
	never := newBatcher(nil, limits{queue: 1}, s.counts) // no call runs
	s.batches.stop()
	s.service.batches = never
	if resp := post(); resp.StatusCode != 504 {
		t.Errorf("after the deadline: %s", resp.Status)
	}
}

// TestMemory checks that a request allocates no more memory than is reserved for it.
func TestMemory(t *testing.T) {
	own, err := newFilters(values(t, []float32{1, 2}, 2, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	for i := range 2300 {
		fmt.Fprintf(&names, `"%d":{"dtype":"F32"},`, i)
	}
	header := "{" + strings.TrimSuffix(names.String(), ",") + "}"
	long := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for name, body := range map[string][]byte{"numbers": large(t, 8<<20), "a long header": long} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decode(body, api.Safetensors, own)
		runtime.ReadMemStats(&after)
		// decode allocates neither the body nor its smaller buffer, which are two of the memoryPerByte bytes.
		used, most := after.TotalAlloc-before.TotalAlloc, uint64((memoryPerByte-2)*len(body)+memoryOfDecoding)
		if used > most {
			t.Errorf("%s: %d bytes were allocated, but only %d are reserved (%v)", name, used, most, err)
		}
		t.Logf("%s: %d of %d bytes (%.80v)", name, used, most, err)
	}
}

// TestStopCutsOff checks that a stop disconnects a client whose own deadlines are
// later than forStop.
func TestStopCutsOff(t *testing.T) {
	l := shortLimits()
	l.forBody, l.forStop = 20*time.Second, 200*time.Millisecond
	s := start(t, l, registry.Options{})
	s.dial(t, typed(1000)+"{")
	s.waitBegun(t, 1)
	begin := time.Now()
	s.stop()
	<-s.stopped
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
}
