package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// serve answers requests until the context ends, and then for the time limits.drain: a load balancer sees that the service is not
// ready, and each answer ends its connection, so that the next request goes elsewhere. After that serve accepts nothing more, finishes the
// requests whose header it has read, and disconnects the other clients, which can send their requests again. Their own deadlines
// disconnect slow clients, at the latest after limits.forStop.
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
			slog.Warn("stop: connections are cut off", "after", s.limits.forStop)
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
	// Wait until all requests have returned: each holds memory until then.
	err = errors.Join(err, s.memory.Acquire(context.WithoutCancel(ctx), s.limits.memory))
	slog.Info("stopped", "requests", s.begun.Load(), "answered", s.answered.Load())
	return err
}

// drained ends the connection of each answer while the service stops.
func (s *service) drained(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
