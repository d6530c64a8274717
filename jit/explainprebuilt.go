package jit

import "context"

// explainPrebuilt explains an earlier build if why means that there is no toolchain: the
// build that a request would use, else the last one that was checked.
func (s *session) explainPrebuilt(ctx context.Context, r Request, why error) (*Explanation, error) {
	if !noToolchain(why) {
		return nil, why
	}
	var e *Explanation
	for q, last := range s.m.buildRecords(r) {
		p, err := s.planPrebuilt(ctx, q, last)
		if err != nil {
			return nil, err
		}
		if e, err = explain(q, p, last); err != nil {
			return nil, err
		}
		e.Toolchain, e.NoCompiler = loadToolchainFiles(s.m.opts.Cache, last.Toolchain.Digest), why.Error()
		if e.Link.Status == Hit {
			break
		}
	}
	if e == nil {
		return nil, why
	}
	return e, nil
}
