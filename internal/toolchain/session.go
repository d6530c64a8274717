package toolchain

import (
	"context"
	"sync"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit/target"
)

// Session finds toolchains for several targets. It reads each file and folder once, and makes the queries
// that do not depend on the target once for each compiler. It is safe for concurrent use.
type Session struct {
	f    *Finder
	memo *filehash.Memo

	digests  sync.Map // path -> SHA-256 of the file
	elfFiles sync.Map // path -> *elfFile without an error

	mu      sync.Mutex
	folders map[string]*folders      // by root
	common  map[string]*sharedAnswer // by memo key
}

// sharedAnswer is a record that several searches wait for.
type sharedAnswer struct {
	once sync.Once
	r    *record
	err  error
}

// Session returns a new session.
func (f *Finder) Session() *Session {
	s := &Session{f: f, memo: f.Memo, folders: map[string]*folders{}, common: map[string]*sharedAnswer{}}
	if s.memo == nil {
		s.memo = filehash.Open("")
	}
	return s
}

// Find is like [Finder.Find].
func (s *Session) Find(ctx context.Context, t target.Target) (*Toolchain, error) {
	at, err := s.f.locate(t.Vendor())
	if err != nil {
		return nil, err
	}
	one := &search{ctx: ctx, target: t, session: s, memo: s.memo, timeout: s.f.Timeout, override: s.f.env("AITER_TOOLCHAIN_ROOT")}
	if one.timeout <= 0 {
		one.timeout = DefaultTimeout
	}
	one.tc = &Toolchain{Vendor: t.Vendor(), Compiler: at.path, env: s.f.environ(t.Vendor(), at), memo: s.memo}
	if err := one.identify(); err != nil {
		return nil, err
	}
	return one.tc, nil
}

// digest returns the SHA-256 of a file.
func (s *Session) digest(path string) (string, error) {
	if known, ok := s.digests.Load(path); ok {
		return known.(string), nil
	}
	digest, err := s.memo.Digest(path)
	if err == nil {
		s.digests.Store(path, digest)
	}
	return digest, err
}

// below returns the session's memory of the folders below a root.
func (s *Session) below(root string) *folders {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.folders[root]
	if known == nil {
		known = &folders{root: root}
		s.folders[root] = known
	}
	return known
}

// once runs a search for all concurrent callers. A failed search is repeated by the next caller.
func (s *Session) once(key string, run func() (*record, error)) (*record, error) {
	s.mu.Lock()
	a := s.common[key]
	if a == nil {
		a = new(sharedAnswer)
		s.common[key] = a
	}
	s.mu.Unlock()
	a.once.Do(func() { a.r, a.err = run() })
	if a.err == nil {
		return a.r, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.common[key] == a {
		delete(s.common, key)
	}
	return nil, a.err
}
