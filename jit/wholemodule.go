package jit

import (
	"context"
)

// useWholeModule answers a request for a part of a module with the whole, where the cache
// has all of that: what was built ahead of time is not compiled again, and a process
// that calls many operators loads one library.
func (s *session) useWholeModule(ctx context.Context, res *Result) bool {
	if s.m.opts.Force {
		return false
	}
	found, ok := s.lookupWholeModule(ctx, res.Request)
	if ok {
		res.Artifact, res.Units, res.record = found.Artifact, found.Units, found.record
	}
	return ok
}

// hasWholeModule says whether takeWhole would find the whole module.
func (s *session) hasWholeModule(ctx context.Context, r Request) bool {
	_, ok := s.lookupWholeModule(ctx, r)
	return ok
}

// lookupWholeModule looks the whole module up of which a request asks for a part. Nothing is
// built.
func (s *session) lookupWholeModule(ctx context.Context, r Request) (res Result, ok bool) {
	whole := Request{Module: r.Module, Target: r.Target}
	if r == whole {
		return res, false
	}
	if s.m.loadBuildRecord(whole).Artifact == "" {
		return res, false // it was never built
	}
	units, link, err := s.plan(ctx, whole)
	if err != nil {
		return res, false // the part's own plan says what is wrong, if it concerns it
	}
	res = Result{Request: whole, Units: make([]UnitResult, len(units))}
	for i, u := range units {
		if u.identify() != nil {
			return res, false
		}
		var miss Miss
		if res.Units[i], miss = u.lookup(); !miss.IsHit() {
			return res, false
		}
	}
	link.identify(res.Units)
	var miss Miss
	if res.Artifact, miss = link.find(); !miss.IsHit() {
		return res, false
	}
	res.record = newBuildRecord(&res, link)
	return res, true
}
