package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/tensor"
)

// program is the service in a process of its own.
type program struct {
	addr   string
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan error
}

func startProgram(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{addr: freeAddress(t), ended: make(chan error, 1)}
	p.cmd = exec.Command(os.Args[0], append([]string{"-addr", p.addr}, args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	waitFor(t, "http://"+p.addr+"/readyz")
	return p
}

func (p *program) signal(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// halfSent opens a connection and sends a part of a request.
func (p *program) halfSent(t *testing.T, body []byte) *server {
	t.Helper()
	s := &server{addr: p.addr}
	s.conn = s.dial(t, typed(len(body))+string(body[:len(body)/2]))
	return s
}

// awaitDraining waits until the program answers that it is not ready. Each such answer ends its connection.
func (p *program) awaitDraining(t *testing.T) {
	t.Helper()
	await(t, "an answer that the program is not ready", func() bool {
		resp, err := http.Get("http://" + p.addr + "/readyz")
		if err != nil {
			t.Fatalf("readyz while the program stops: %v", err)
		}
		_ = resp.Body.Close()
		draining := resp.StatusCode == http.StatusServiceUnavailable
		if draining && !resp.Close {
			t.Error("readyz while the program stops: the connection stays open")
		}
		return draining
	})
}

// TestStopUnderLoad stops the program while clients send requests. Each request that the program has accepted gets its whole answer. The
// other requests fail without a byte of an answer.
func TestStopUnderLoad(t *testing.T) {
	p := startProgram(t, "-drain", "1s")
	body := encode(t, api.Safetensors, set{
		api.X: pattern(t, tensor.Float32, 0, 200, 64), api.Weight: pattern(t, tensor.Float32, 1, 64, 4),
	})
	code, _, want, err := post(http.DefaultClient, p.addr, string(api.Safetensors), "", "", body)
	if code != http.StatusOK || err != nil {
		t.Fatal(code, err)
	}
	http.DefaultClient.CloseIdleConnections()
	answers, refused := atomic.Int64{}, atomic.Int64{}
	answers.Add(1)
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			// Half of the clients use a connection for each request.
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}}
			defer client.CloseIdleConnections()
			for {
				code, _, answer, err := post(client, p.addr, string(api.Safetensors), "", "", body)
				switch {
				case err != nil && code != 0:
					t.Errorf("an answer is cut: %d, %d of %d bytes, %v", code, len(answer), len(want), err)
					return
				case err != nil:
					refused.Add(1)
					return
				case code != http.StatusOK || !bytes.Equal(answer, want):
					t.Errorf("got %d, %d bytes, want the answer of %d bytes", code, len(answer), len(want))
				}
				answers.Add(1)
			}
		})
	}
	slow := p.halfSent(t, body)
	before := answers.Load()
	await(t, "32 answers after the half of a request", func() bool { return answers.Load() >= before+32 })
	p.signal(t)
	p.awaitDraining(t)
	clients.Wait() // until all are refused
	if _, err := slow.conn.Write(body[len(body)/2:]); err != nil {
		t.Error(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(slow.conn), nil)
	if err != nil {
		t.Fatalf("the request that was accepted before the stop: %v", err)
	}
	if answer, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(answer, want) {
		t.Errorf("the request that was accepted before the stop: %d bytes, %v", len(answer), err)
	}
	answers.Add(1)
	if err := <-p.ended; err != nil {
		t.Errorf("%v\n%s", err, &p.output)
	}
	n := answers.Load()
	logged := fmt.Sprintf("stopped requests=%d answered=%d", n, n)
	if !strings.Contains(p.output.String(), logged) || refused.Load() != 16 {
		t.Errorf("the clients have %d answers, %d clients were refused, want 16; want %q\n%s", n, refused.Load(), logged, &p.output)
	}
}

// A second signal ends the program at once.
func TestSecondSignal(t *testing.T) {
	p := startProgram(t, "-drain", "20s")
	p.halfSent(t, make([]byte, 1000))
	begin := time.Now()
	p.signal(t)
	p.awaitDraining(t)
	for err := error(nil); ; {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // again: the program may not yet have removed its handler
		select {
		case err = <-p.ended:
		case <-time.After(100 * time.Millisecond):
			continue
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Success() || time.Since(begin) > 10*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
		return
	}
}

// The load client measures a service. It also detects wrong answers, here the answers of a service whose filters differ from the client's.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	load := filepath.Join(dir, "load")
	if out, err := exec.Command("go", "build", "-o", load, "./load").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(load, "-save", dir, "-dim", "64").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := startProgram(t, "-weights", filepath.Join(dir, "weights.safetensors"), "-drain", "0s")
	args := []string{"-addr", "here=" + p.addr, "-connections", "1,4", "-rounds", "2", "-duration", "100ms", "-own", "-dim", "64"}
	out, err := exec.Command(load, args...).CombinedOutput()
	if err != nil || !regexp.MustCompile(`\| here \| 4 \| [1-9]`).Match(out) {
		t.Errorf("%v: %s", err, out)
	}
	out, err = exec.Command(load, append(args, "-width", "3")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "initial_states: expected") {
		t.Errorf("with requests for another width: %v: %s", err, out)
	}
	other := encode(t, api.Safetensors, set{api.Weight: pattern(t, tensor.BFloat16, 0, 64, 4)})
	if err := os.WriteFile(filepath.Join(dir, "other.safetensors"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	q := startProgram(t, "-weights", filepath.Join(dir, "other.safetensors"), "-drain", "0s")
	out, err = exec.Command(load, append(args, "-addr", q.addr)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "out: element 0: expected") {
		t.Errorf("with other filters: %v: %s", err, out)
	}
	for _, p := range []*program{p, q} {
		p.signal(t)
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
	}
}
