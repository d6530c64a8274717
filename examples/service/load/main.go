// Command load sends requests to the service over a number of connections, checks the answers, and prints rates and latencies. It
// alternates between several addresses, such as those of a service with batches and of one without.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/aiter-go/aiter/tensor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// shape is the shape of the requests.
type shape struct {
	seqlen, dim, width int64
	dtype              tensor.DType
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	addrs := flags.String("addr", "localhost:8080", "`ADDRESSES` of services, with commas; NAME=ADDRESS gives a row a name")
	connections := flags.String("connections", "1,8,64", "numbers of connections, with commas")
	duration := flags.Duration("duration", 3*time.Second, "of one measurement")
	rounds := flags.Int("rounds", 5, "measurements of each row, alternating between rows; the table has the medians")
	save := flags.String("save", "", "write a request to x.npy, request.safetensors and weights.safetensors in a `FOLDER`, and exit")
	own := flags.Bool("own", false, "send no filters: the service has its own, from its -weights")
	var s shape
	flags.Int64Var(&s.seqlen, "seqlen", 16, "positions of a request")
	flags.Int64Var(&s.dim, "dim", 1024, "channels")
	flags.Int64Var(&s.width, "width", 4, "width of the filters")
	dtype := flags.String("dtype", "bfloat16", "element type")
	err := flags.Parse(args)
	if err != nil {
		return err
	}
	if s.dtype, err = tensor.ParseDType(*dtype); err != nil {
		return err
	}
	samples, err := newSamples(s, *own)
	if err != nil {
		return err
	}
	if *save != "" {
		return samples[0].save(*save)
	}
	var rows []*row
	for item := range strings.SplitSeq(*connections, ",") {
		n, err := strconv.Atoi(item)
		if err != nil || n < 1 {
			return fmt.Errorf("-connections %q: expected numbers from 1, with commas", *connections)
		}
		for target := range strings.SplitSeq(*addrs, ",") {
			name, addr, named := strings.Cut(target, "=")
			if !named {
				name, addr = target, target
			}
			rows = append(rows, &row{name: name, addr: addr, connections: n})
		}
	}
	for range *rounds {
		for _, r := range rows {
			if err := r.measure(ctx, samples, *duration); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%s[%d %d], width %d, %s per request; median of %d rounds of %s\n\n", s.dtype, s.seqlen, s.dim, s.width,
		kib(int64(len(samples[0].body))), *rounds, *duration)
	fmt.Println("| service | connections | requests/s | p50 ms | p99 ms | max ms | requests a call |\n|---|--:|--:|--:|--:|--:|--:|")
	wrong := 0
	for _, r := range rows {
		fmt.Println(r)
		wrong += r.failed
	}
	if wrong > 0 {
		return fmt.Errorf("%d requests have failed; the errors are above", wrong)
	}
	return nil
}

func kib(n int64) string { return strconv.FormatInt((n+1023)/1024, 10) + " KiB" }
