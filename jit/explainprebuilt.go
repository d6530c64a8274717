package jit

import "context"

// explainPrebuilt explains what was built before, when why says that there is no
// toolchain: what a build would take, else what it looked at last.
func (s *session) explainPrebuilt(ctx context.Context, r Request, why error) (*Explanation, error) {
	if !noToolchain(why) {
		return nil, why
	}
	var e *Explanation
	for q, last := range s.m.buildRecords(r) {
		units, link, err := s.planPrebuilt(ctx, q, last)
		if err != nil {
			return nil, err
		}
		if e, err = explain(q, units, link, last); err != nil {
			return nil, err
		}
		e.Toolchain, e.NoCompiler = loadParts(s.m.opts.Cache, last.Toolchain.Digest), why.Error()
		if e.Link.Status == Hit {
			break
		}
	}
	if e == nil {
		return nil, why
	}
	return e, nil
}
