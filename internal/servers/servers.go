// Package servers has the rules for servers that builds use: which hosts are this machine, and how long a server is not used
// after a fault.
package servers

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

// IsLoopback reports whether a host, with or without a port, is this machine.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// SuspensionTime is how long a server is not used after a fault, so that each start of a program is not delayed again.
const SuspensionTime = time.Minute

// Fault is the last fault of a server.
type Fault struct {
	Time  time.Time
	Cause string
	Err   error
}

// Until returns the end of the suspension.
func (f Fault) Until() time.Time { return f.Time.Add(SuspensionTime) }

// Suspension keeps programs from using a server after a fault.
type Suspension struct {
	store *cache.Dir
	key   cache.Key
	log   *slog.Logger

	mu  sync.Mutex
	own Fault // of this process
}

// NewSuspension returns the suspension of a server, whose faults are records of a cache under a key.
func NewSuspension(store *cache.Dir, key cache.Key, log *slog.Logger) *Suspension {
	return &Suspension{store: store, key: key, log: log}
}

// record is a fault in a cache.
type record struct {
	Time  time.Time `json:"time"`
	Cause string    `json:"cause"`
	Text  string    `json:"text"`
}

// Suspend notes a fault for this process.
func (s *Suspension) Suspend(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = f
}

// Share stores a fault for all processes that use the cache.
func (s *Suspension) Share(f Fault) {
	data, err := json.Marshal(record{f.Time, f.Cause, f.Err.Error()})
	if err == nil {
		err = s.store.Put(cache.Failure, s.key, data)
	}
	if err != nil {
		s.log.Debug("cannot store the fault of a server; other processes use it", "fault", f.Err, "error", err)
	}
}

// Forget removes the fault that processes share: the server works again.
func (s *Suspension) Forget() {
	_ = s.store.Forget(cache.Failure, s.key) // a fault that stays ends by itself
}

// Active returns the fault because of which the server is not used now.
func (s *Suspension) Active() (f Fault, suspended bool) {
	s.mu.Lock()
	f = s.own
	s.mu.Unlock()
	if f.Err != nil && time.Now().Before(f.Until()) {
		return f, true
	}
	var r record
	data, err := s.store.Get(cache.Failure, s.key)
	if err != nil || json.Unmarshal(data, &r) != nil {
		return Fault{}, false
	}
	age := time.Since(r.Time) // negative after a change of the clock
	return Fault{r.Time, r.Cause, errors.New(r.Text)}, age >= 0 && age < SuspensionTime
}
