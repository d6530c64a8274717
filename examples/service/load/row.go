package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aiter-go/aiter/examples/service/api"
)

// row has the measurements of a service with a number of connections.
type row struct {
	name, addr  string
	connections int
	rounds      []round
	failed      int
}

// round is one measurement.
type round struct {
	rate          float64 // answers per second
	p50, p99, max time.Duration
	perCall       float64 // requests per call of the operator
}

// measure adds a round. Each connection sends its next request after it has received the answer to the previous one.
func (r *row) measure(ctx context.Context, samples []*sample, length time.Duration) error {
	calls, requests, err := r.counters(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	times, failures := make([][]time.Duration, r.connections), make([]error, r.connections)
	var clients sync.WaitGroup
	begin := time.Now()
	for i := range r.connections {
		clients.Go(func() { times[i], failures[i] = r.client(ctx, samples, i) })
	}
	clients.Wait()
	took := time.Since(begin)
	for _, err := range failures {
		if err != nil {
			r.failed++
			fmt.Fprintf(os.Stderr, "load: %s: %v\n", r.name, err)
		}
	}
	all := slices.Concat(times...)
	if len(all) == 0 {
		return fmt.Errorf("%s: no answer; is the service ready?", r.addr)
	}
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1))] }
	callsAfter, requestsAfter, err := r.counters(context.WithoutCancel(ctx))
	r.rounds = append(r.rounds, round{
		float64(len(all)) / took.Seconds(), at(0.5), at(0.99), at(1), (requestsAfter - requests) / (callsAfter - calls),
	})
	return err
}

// client sends requests on one connection until the context ends, or a request fails.
func (r *row) client(ctx context.Context, samples []*sample, number int) (times []time.Duration, err error) {
	transport := &http.Transport{MaxConnsPerHost: 1, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	for i := number; ctx.Err() == nil; i++ {
		s := samples[i%len(samples)]
		begin := time.Now()
		answer, err := send(&client, r.addr, s.body)
		if err != nil {
			return times, err
		}
		times = append(times, time.Since(begin))
		if err := s.check(answer); err != nil {
			return times, err
		}
	}
	return times, nil
}

// send returns the answer to a request.
func send(client *http.Client, addr string, body []byte) ([]byte, error) {
	resp, err := client.Post("http://"+addr+"/v1/conv1d?activation=silu", string(api.Safetensors), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	return answer, err
}

// counters reads the numbers of calls and of their requests from the service's metrics.
func (r *row) counters(ctx context.Context) (calls, requests float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.addr+"/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		for name, to := range map[string]*float64{"conv1d_batch_requests_count ": &calls, "conv1d_batch_requests_sum ": &requests} {
			if text, ok := strings.CutPrefix(lines.Text(), name); ok {
				var failed error
				*to, failed = strconv.ParseFloat(text, 64)
				err = errors.Join(err, failed)
			}
		}
	}
	return calls, requests, errors.Join(err, lines.Err())
}

// String returns the row in Markdown, with the medians of the rounds.
func (r *row) String() string {
	median := func(of func(round) float64) float64 {
		var values []float64
		for _, one := range r.rounds {
			values = append(values, of(one))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	ms := func(of func(round) time.Duration) float64 {
		return median(func(one round) float64 { return float64(of(one)) / 1e6 })
	}
	return fmt.Sprintf("| %s | %d | %.0f | %.2f | %.2f | %.1f | %.1f |", r.name, r.connections,
		median(func(o round) float64 { return o.rate }),
		ms(func(o round) time.Duration { return o.p50 }), ms(func(o round) time.Duration { return o.p99 }),
		ms(func(o round) time.Duration { return o.max }), median(func(o round) float64 { return o.perCall }))
}
