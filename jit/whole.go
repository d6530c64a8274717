package jit

import (
	"context"

	"github.com/aiter-go/aiter/jit/cache"
)

// takeWhole answers a request for a part of a module with the whole, where the cache
// has all of that: what was built ahead of time is not compiled again, and a process
// that calls many operators loads one library.
func (s *session) takeWhole(ctx context.Context, res *Result) bool {
	if s.m.opts.Force {
		return false
	}
	a, units, ok := s.findWhole(ctx, res.Request)
	if ok {
		res.Artifact, res.Units = a, units
	}
	return ok
}

// findWhole looks the whole module up of which a request asks for a part. Nothing is
// built.
func (s *session) findWhole(ctx context.Context, r Request) (cache.Artifact, []UnitResult, bool) {
	whole := Request{Module: r.Module, Target: r.Target}
	if r == whole {
		return cache.Artifact{}, nil, false
	}
	units, link, err := s.plan(ctx, whole)
	if err != nil {
		return cache.Artifact{}, nil, false // the part's own plan says what is wrong, if it concerns it
	}
	results := make([]UnitResult, len(units))
	for i, u := range units {
		if u.identify() != nil {
			return cache.Artifact{}, nil, false
		}
		found := false
		if results[i], found, _ = u.lookup(); !found {
			return cache.Artifact{}, nil, false
		}
	}
	link.identify(results)
	a, ok := link.lookup()
	return a, results, ok
}
