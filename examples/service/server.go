package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// serve answers requests until the context ends, and then for limits.drain. In that time a load balancer sees that the service is not
// ready, and each answer closes its connection, so that the client's next request goes to another service. Then serve accepts no further
// requests. It finishes the requests whose headers it has read, and disconnects the other clients, which can send their requests again.
// Slow clients are disconnected by the time limits of their requests, or after limits.forStop.
func (s *service) serve(ctx context.Context, listener net.Listener, routes http.Handler) error {
	srv := &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: s.limits.forHeader,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	finished := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		s.draining.Store(true)
		if s.ready.Load() {
			slog.Info("stopping", "accepting", s.limits.drain)
			time.Sleep(s.limits.drain)
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.forStop)
		defer cancel()
		err := srv.Shutdown(limited)
		if errors.Is(err, context.DeadlineExceeded) {
			slog.Warn("stop: disconnect the remaining clients", "after", s.limits.forStop)
			err = srv.Close()
		}
		finished <- err
	})
	slog.Info("listening", "addr", listener.Addr())
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		s.batches.stop()
		return err
	}
	err := <-finished
	s.batches.stop()
	// The service has all its memory when all requests have returned.
	err = errors.Join(err, s.memory.Acquire(context.WithoutCancel(ctx), s.limits.memory))
	slog.Info("stopped", "requests", s.begun.Load(), "answered", s.answered.Load())
	return err
}

// drained closes the connection of each answer while the service stops.
func (s *service) drained(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
