// Command service computes causal convolutions over HTTP. It shows how a program opens a
// registry, builds before its first request, calls operators on a device, and
// distinguishes errors of clients from its own.
//
//	go run ./examples/service -addr localhost:8080 -device cpu
//	curl -d '{"x": [[[1,2,3,4]]], "weight": [[10,1]]}' localhost:8080/conv1d
//	{"out":[[[1,12,23,34]]]}
//	curl localhost:8080/metrics
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "address to listen on")
	name := flags.String("device", "cpu", "device: cpu, rocm:0, cuda:0")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dev, err := tensor.ParseDevice(*name)
	if err != nil {
		return err
	}
	counts := metrics.New()
	reg, err := registry.Open(ctx, registry.Options{Observer: counts})
	if err != nil {
		return err
	}
	counts.SetCache(reg.Manager().Cache())
	svc, err := newService(reg, dev, counts, defaultLimits())
	if err != nil {
		return errors.Join(err, reg.Close())
	}
	// Requests wait for the compiler only if they come before this is done.
	ctx, cancel := context.WithCancel(ctx)
	var building sync.WaitGroup
	var failed error
	building.Go(func() {
		// A service that cannot become ready ends with an error.
		if err := svc.warm(ctx); err != nil && ctx.Err() == nil {
			failed = fmt.Errorf("build ahead of the first request: %w", err)
			cancel()
		}
	})
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		err = svc.serve(ctx, listener, svc.routes())
	}
	cancel()
	building.Wait()
	return errors.Join(failed, err, reg.Close())
}

// serve answers requests until the context ends. Then it accepts no more requests,
// finishes those whose header it has read, and disconnects the other clients, which
// can send their requests again. Their own deadlines disconnect slow clients, at the
// latest after limits.forStop.
func (s *service) serve(ctx context.Context, listener net.Listener, routes http.Handler) error {
	srv := &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: s.limits.forHeader,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	finished := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.forStop)
		defer cancel()
		err := srv.Shutdown(limited)
		if errors.Is(err, context.DeadlineExceeded) {
			slog.Warn("stop: connections are cut off", "after", s.limits.forStop)
			err = srv.Close()
		}
		finished <- err
	})
	slog.Info("listening", "addr", listener.Addr())
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	err := <-finished
	// Wait until all requests have returned: each holds memory until then.
	return errors.Join(err, s.memory.Acquire(context.WithoutCancel(ctx), s.limits.memory))
}
