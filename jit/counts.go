package jit

import (
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
)

// counts is what a build adds to the counts of its cache.
func counts(results []Result) []cache.Count {
	sums := map[[2]string]*cache.Count{}
	add := func(event, reason string, seconds float64) {
		at := [2]string{event, reason}
		if sums[at] == nil {
			sums[at] = &cache.Count{Event: event, Reason: reason}
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
				add(cache.UnitMiss, missClass(u.Reason), u.cost)
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

// linkCount is what became of the link; its seconds are those beyond the
// units'.
func (r Result) linkCount() (event, reason string, seconds float64) {
	seconds = r.Artifact.Seconds
	for _, u := range r.Units {
		seconds -= u.cost
	}
	seconds = max(seconds, 0)
	if r.linked {
		return cache.LinkMiss, "", seconds
	}
	return cache.LinkHit, "", seconds
}

// missClass is the reason of a miss without the names in it, so that there are
// a handful of reasons and not one a file.
func missClass(reason string) string {
	class, _, _ := strings.Cut(reason, ":")
	switch {
	case strings.HasPrefix(class, "never built"):
		return "never built"
	case strings.HasPrefix(class, "source "):
		return "source changed"
	case strings.HasPrefix(class, "cache format"):
		return "cache format changed"
	case strings.HasPrefix(class, "not in the cache"):
		return "not in the cache"
	case strings.HasPrefix(class, "cache"):
		return "records lost"
	}
	return class
}
