package jit

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/cache"
)

// trimAfter trims the cache in the background if a build added something to the cache and the
// last trim was more than an hour ago. [Manager.Close] waits for the trim.
func (m *Manager) trimAfter(ctx context.Context, results []Result) {
	if !addedTo(results) || !m.opts.Cache.TrimDue() {
		return
	}
	log := zerolog.Ctx(ctx)
	m.trims.Go(func() {
		rep, err := m.opts.Cache.Trim()
		if !rep.Due && err == nil {
			return
		}
		m.observeTrim(log, rep, err)
	})
}

func (m *Manager) observeTrim(log *zerolog.Logger, rep cache.TrimReport, err error) {
	log.Debug().Int("artifacts", len(rep.Removed)).Int("in_use", len(rep.InUse)).Int("files", rep.Orphans).
		Int64("bytes", rep.Bytes).Err(err).Msg(string(Trimmed))
	m.opts.Observer.Observe(Event{Step: Trimmed, Units: len(rep.Removed), Err: err})
}

func addedTo(results []Result) bool {
	for _, r := range results {
		if r.linked || compiledAny(r.Units) {
			return true
		}
	}
	return false
}

// Close waits for background work. The manager may be used afterwards.
func (m *Manager) Close() error {
	m.trims.Wait()
	return nil
}
