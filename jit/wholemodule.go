package jit

import "context"

// useWholeModule fills the result of a request for a part with the library of the whole
// module, if the cache has an up-to-date one. So a call compiles no part of a module that
// was built ahead of time, and a process that calls many operators loads one library.
func (s *session) useWholeModule(ctx context.Context, res *Result) bool {
	if s.m.opts.Force {
		return false
	}
	p, c, ok := s.lookupWholeModule(ctx, res.Request)
	if ok {
		p.useCached(res, c)
	}
	return ok
}

// lookupWholeModule looks up the whole module of a request for a part.
func (s *session) lookupWholeModule(ctx context.Context, r Request) (p *plan, c cachedPlan, ok bool) {
	whole := Request{Module: r.Module, Target: r.Target}
	if r == whole || s.m.loadBuildRecord(whole).Artifact == "" {
		return nil, c, false
	}
	p, err := s.plan(ctx, whole)
	if err != nil {
		return nil, c, false // the part's own plan reports the error, if it concerns the part
	}
	c, err = p.lookup(false)
	return p, c, err == nil && c.firstMiss() == ""
}
