package jit

import (
	"github.com/aiter-go/aiter/internal/cache"
)

// counts returns the hits and misses of a build, for [cache.Dir.Count].
func counts(results []Result) []cache.Count {
	sums := map[[2]string]*cache.Count{}
	add := func(event string, cause Cause, seconds float64) {
		key := [2]string{event, string(cause)}
		if sums[key] == nil {
			sums[key] = &cache.Count{Event: event, Cause: string(cause)}
		}
		sums[key].N++
		sums[key].Seconds += seconds
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

// linkCount returns the event of the link. Its seconds are those of the artifact without
// those of the units.
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
