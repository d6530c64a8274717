package jit

import "github.com/aiter-go/aiter/internal/cache"

// trimAfter trims the cache in the background if a build added something to it.
func (m *Manager) trimAfter(results []Result) {
	if addedTo(results) {
		m.trimInBackground()
	}
}

// trimInBackground trims the cache in the background if the last trim was more than an hour ago. [Manager.Close] waits
// for the trim.
func (m *Manager) trimInBackground() {
	if !m.opts.Cache.TrimDue() {
		return
	}
	m.trims.Go(func() {
		rep, err := m.opts.Cache.Trim()
		if !rep.Due && err == nil {
			return
		}
		m.observeTrim(rep, err)
	})
}

func (m *Manager) observeTrim(rep cache.TrimReport, err error) {
	fields := []any{"artifacts", len(rep.Removed), "in_use", len(rep.InUse), "files", rep.Orphans, "bytes", rep.Bytes}
	if err != nil {
		fields = append(fields, "error", err)
	}
	m.opts.Logger.Debug(string(Trimmed), fields...)
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
