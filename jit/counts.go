package jit

import (
	"github.com/aiter-go/aiter/internal/cache"
)

// counts returns what a build adds to the counts of its cache.
func counts(results []Result) []cache.Count {
	sums := map[[2]string]*cache.Count{}
	add := func(event string, cause Cause, seconds float64) {
		at := [2]string{event, string(cause)}
		if sums[at] == nil {
			sums[at] = &cache.Count{Event: event, Cause: string(cause)}
		}
		sums[at].N++
		sums[at].Seconds += seconds
	}
	for _, r := range results {
		for _, u := range r.Units {
			switch u.Status {
			case Hit:
				add(cache.UnitHit, "", u.cost)
			case Compiled:
				add(cache.UnitMiss, u.Miss.Cause, u.cost)
			}
		}
		if r.Err == nil {
			add(r.linkCount())
		}
	}
	var out []cache.Count
	for _, c := range sums {
		out = append(out, *c)
	}
	return out
}

// linkCount returns the count of the link; its seconds are those beyond the
// units'.
func (r Result) linkCount() (event string, cause Cause, seconds float64) {
	seconds = r.Artifact.Seconds
	for _, u := range r.Units {
		seconds -= u.cost
	}
	seconds = max(seconds, 0)
	if r.linked {
		return cache.LinkMiss, r.linkMiss.Cause, seconds
	}
	return cache.LinkHit, "", seconds
}
