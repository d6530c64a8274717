package jit

import (
	"github.com/aiter-go/aiter/internal/deps"
)

// fail makes the error of a failed link, writes the log, and leaves the
// diagnostics for builders that wait for the link or ask for it again.
func (l *link) fail(c command, out outcome) error {
	e := CompileError{Module: l.mod.Name, Target: l.target.String(), Command: c.argv, Dir: c.dir, Reason: out.reason, Output: string(out.output)}
	e.Log = writeLog(l.m.opts.Cache, l.key, &e)
	f := failureRecord{Error: e}
	if isInputError(out) && !l.namesFiles() {
		f.Inputs = &deps.Set{} // the key has all inputs
	}
	if out.late {
		f.Limit = c.timeout
	}
	storeFailure(l.m.opts.Cache, l.key, f)
	return &e
}

// wouldRepeat reports whether a link now would fail as that one did.
func (l *link) wouldRepeat(f *failureRecord) bool {
	return f != nil && f.Inputs != nil && !l.namesFiles()
}

func (l *link) lastFailure() *failureRecord { return loadFailure(l.m.opts.Cache, l.key) }

// failureWhileWaiting returns the failure of another builder that held the lock,
// or one that a link now would repeat.
func (l *link) failureWhileWaiting(before *failureRecord) *CompileError {
	f := l.lastFailure()
	switch {
	case f.isNewerThan(before) && (f.Limit == 0 || l.timeout <= f.Limit):
		return &f.Error
	case l.wouldRepeat(f):
		return f.cachedError()
	}
	return nil
}
