package fleet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

// State describes the sets that were pulled below a cache, as the next program would find them.
type State struct {
	Reference string        `json:"reference"` // of AITER_JIT_REMOTE, "" if it is unset or wrong
	Suspended *Suspension   `json:"suspended"` // nil: the next program that misses something sends requests
	Caches    []PulledCache `json:"caches"`    // by reference, module and target
}

// PulledCache is a read-only cache with the artifacts of a module for a target, from a set.
type PulledCache struct {
	Path      string    `json:"path"`
	Reference string    `json:"reference"` // of the pull
	Digest    string    `json:"digest"`    // of the set's manifest
	Key       string    `json:"key"`       // ID of the key that signed the set, "" if the reference was pinned
	Module    string    `json:"module"`
	Target    string    `json:"target"`
	Pulled    time.Time `json:"pulled"`
	Used      time.Time `json:"used"`
	Artifacts int       `json:"artifacts"`
	Bytes     int64     `json:"bytes"`
	Refused   string    `json:"refused"` // why programs with these variables do not use it, "" if they do
}

// ReadState describes the pulled caches below a cache, and the registry of AITER_JIT_REMOTE. It opens no connection.
func ReadState(store *cache.Dir, getenv func(string) string) State {
	st := State{Caches: []PulledCache{}}
	refused := func(note) error { return errors.New("AITER_JIT_REMOTE is unset") }
	opened, err := Open(jit.SourceOptions{Cache: store, Getenv: getenv, Logger: slog.New(slog.DiscardHandler)})
	if s, ok := opened.(*source); ok {
		st.Reference, st.Suspended = s.ref.String(), s.suspension()
		keys, err := trust(s.ref, s.o)
		refused = func(n note) error { return cmp.Or(err, s.accepts(n, keys)) }
	} else if err != nil {
		refused = func(note) error { return err }
	}
	for _, p := range store.PulledCaches() {
		st.Caches = append(st.Caches, newPulledCache(p, refused))
	}
	slices.SortFunc(st.Caches, func(a, b PulledCache) int {
		return cmp.Or(cmp.Compare(a.Reference, b.Reference), cmp.Compare(a.Module, b.Module), cmp.Compare(a.Target, b.Target),
			a.Pulled.Compare(b.Pulled), cmp.Compare(a.Path, b.Path))
	})
	return st
}

// newPulledCache describes a pulled cache. refused returns why its note is not accepted.
func newPulledCache(p cache.PulledCache, refused func(note) error) PulledCache {
	var n note
	err := p.Err
	if err == nil {
		if err = json.Unmarshal(p.Note, &n); err != nil {
			err = fmt.Errorf("its note is damaged: %w", err)
		} else {
			err = refused(n)
		}
	}
	out := PulledCache{
		Path: p.Path, Reference: n.Reference, Digest: n.Manifest, Key: n.Key, Module: n.Module, Target: n.Target, Pulled: n.Time,
		Used: p.Used, Artifacts: len(p.Artifacts), Bytes: p.Bytes,
	}
	if err != nil {
		out.Refused = err.Error()
	}
	return out
}
