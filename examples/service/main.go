// Command service computes causal convolutions over HTTP. It shows how a program uses a GPU operator in production: it builds and
// checks the code before it is ready, joins concurrent requests into calls, bounds memory and time, and before it stops it answers all
// requests that it has accepted. README.md has commands to try.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	l := defaultLimits(tensor.Host())
	addr := flags.String("addr", "localhost:8080", "address to listen on")
	name := flags.String("device", "cpu", "device: cpu, rocm:0, cuda:0")
	weights := flags.String("weights", "", "safetensors `FILE` with the weight and the bias of all requests; default: each has its own")
	batch := flags.Int64("batch", l.batch>>10, "`KiB` of x in a call of several requests; 0: each request is a call of its own")
	memory := flags.Int64("memory", l.memory>>20, "host memory of all requests at once, in `MiB`")
	drain := flags.Duration("drain", l.drain, "how long the service accepts requests after a signal to stop, while /readyz answers 503")
	debug := flags.Bool("debug", false, "serve /debug/trace?seconds=N")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dev, err := tensor.ParseDevice(*name)
	if err != nil {
		return err
	}
	own, err := readFilters(*weights)
	if err != nil {
		return err
	}
	l = defaultLimits(dev)
	l.batch, l.memory, l.drain = *batch<<10, *memory<<20, *drain
	builds, rec := metrics.New(), (*trace.Recorder)(nil)
	if *debug {
		rec = trace.New(trace.Options{})
		rec.Pause()
	}
	reg, err := registry.Open(ctx, registry.Options{Observer: builds, Trace: rec, Tune: true})
	if err != nil {
		return err
	}
	builds.SetCache(reg.Manager().Cache())
	svc, err := newService(reg, dev, own, builds, rec, l)
	if err == nil {
		err = svc.listen(ctx, *addr)
	}
	return errors.Join(err, reg.Close())
}

// readFilters reads the filters of the service from a file. It returns nil if the name is empty.
func readFilters(name string) (*filters, error) {
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	tensors, err := api.Safetensors.Decode(data, "")
	if err != nil {
		return nil, fmt.Errorf("-weights %s: %w", name, err)
	}
	f, err := newFilters(tensors[api.Weight], tensors[api.Bias])
	if err != nil {
		return nil, fmt.Errorf("-weights %s: %w", name, err)
	}
	return f, nil
}

// listen builds the code, and meanwhile serves at an address until the context ends. If the build fails, listen stops and returns the
// error.
func (s *service) listen(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var building sync.WaitGroup
	var failed error
	building.Go(func() {
		if err := s.warm(ctx); err != nil && ctx.Err() == nil {
			failed = fmt.Errorf("build ahead of the first request: %w", err)
			cancel()
		}
	})
	listener, err := net.Listen("tcp", addr)
	if err == nil {
		err = s.serve(ctx, listener, s.routes())
	} else {
		s.batches.stop()
	}
	cancel()
	building.Wait()
	return errors.Join(failed, err)
}
