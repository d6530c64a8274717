package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// get returns the code and the text of the answer to a GET request.
func (s *server) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + s.addr + path)
	if err != nil {
		t.Error(err)
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// send posts a request, and returns the code, the type and the body of the answer.
func (s *server) send(t *testing.T, kind, accept, query string, body []byte) (int, string, []byte) {
	t.Helper()
	code, kind, answer, err := post(http.DefaultClient, s.addr, kind, accept, query, body)
	if err != nil {
		t.Error(err)
	}
	return code, kind, answer
}

func post(client *http.Client, addr, kind, accept, query string, body []byte) (int, string, []byte, error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/v1/conv1d?"+query, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	req.Header.Set("Content-Type", kind)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Content-Type"), answer, errors.Join(err, resp.Body.Close())
}

// waitFor sends requests until the answer is 200.
func waitFor(t *testing.T, url string) {
	t.Helper()
	await(t, "the answer of "+url, func() bool {
		resp, err := http.Get(url)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
}

// await waits until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s for 5 minutes", what)
		}
	}
}

// freeAddress returns an address to listen on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
