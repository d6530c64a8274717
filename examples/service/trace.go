package main

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// maxTrace is the longest time that a client may record.
const maxTrace = 30 * time.Second

// trace records for the seconds that a client asks for, and answers with a timeline in the Chrome trace event format, which Perfetto
// opens.
func (s *service) trace(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	if err != nil || !(seconds > 0 && seconds <= maxTrace.Seconds()) {
		http.Error(w, "seconds: expected a number above 0 and at most "+strconv.Itoa(int(maxTrace.Seconds())), http.StatusBadRequest)
		return
	}
	if !s.tracing.TryLock() {
		http.Error(w, "another trace is being recorded; try again later", http.StatusConflict)
		return
	}
	defer s.tracing.Unlock()
	conn, length := http.NewResponseController(w), time.Duration(seconds*float64(time.Second))
	_ = conn.SetWriteDeadline(time.Now().Add(length + s.limits.forAnswer))
	_ = conn.SetReadDeadline(time.Time{})
	s.rec.Reset()
	s.rec.Resume()
	select {
	case <-time.After(length):
	case <-r.Context().Done():
	}
	s.rec.Pause()
	w.Header().Set("Content-Type", "application/json")
	if err := s.rec.Timeline().WriteChrome(w); err != nil {
		slog.Warn("trace", "err", err)
	}
	s.rec.Reset()
}
