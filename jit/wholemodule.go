package jit

import "context"

// useWholeModule answers a request for a part with the library of the whole module, if
// the cache has an up-to-date one. So a module that was built ahead of time is not
// compiled again, and a process that calls many operators loads one library.
func (s *session) useWholeModule(ctx context.Context, res *Result) bool {
	if s.m.opts.Force {
		return false
	}
	p, f, ok := s.lookupWholeModule(ctx, res.Request)
	if ok {
		p.take(res, f)
	}
	return ok
}

// lookupWholeModule looks up the whole module of a request for a part.
func (s *session) lookupWholeModule(ctx context.Context, r Request) (p *plan, f found, ok bool) {
	whole := Request{Module: r.Module, Target: r.Target}
	if r == whole || s.m.loadBuildRecord(whole).Artifact == "" {
		return nil, f, false
	}
	p, err := s.plan(ctx, whole)
	if err != nil {
		return nil, f, false // the part's own plan reports the error, if it concerns the part
	}
	f, err = p.lookup(false)
	return p, f, err == nil && f.miss() == ""
}
