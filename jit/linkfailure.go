package jit

import (
	"slices"
	"strings"
)

// fail leaves the linker's words for those who wait. They are remembered when
// everything that was linked is part of the key.
func (l *link) fail(c command, out outcome, e *CompileError) error {
	f := failureRecord{Error: *e}
	if out.late {
		f.Limit = c.timeout
	}
	if blamesInputs(out) && !slices.ContainsFunc(l.flags, namesFile) {
		f.Inputs = &variant{}
	}
	storeFailure(l.m.opts.Cache, l.key, f)
	return e
}

// namesFile says whether a link flag may name a file: a library, a script.
func namesFile(flag string) bool {
	return strings.ContainsAny(flag, "./") || strings.HasPrefix(flag, "-l") || strings.HasPrefix(flag, "-L") || strings.HasPrefix(flag, "-T") || !strings.HasPrefix(flag, "-")
}

// isFinal says whether a link failed of what its key holds.
func (f *failureRecord) isFinal() bool { return f != nil && f.Inputs != nil }

func (l *link) lastFailure() *failureRecord { return loadFailure(l.m.opts.Cache, l.key) }

// toldFailure is what a link that had to wait for the lock learns.
func (l *link) toldFailure(before *failureRecord) *CompileError {
	f := l.lastFailure()
	switch {
	case f.isNews(before) && (f.Limit == 0 || l.timeout <= f.Limit):
		return &f.Error
	case f.isFinal():
		return f.remembered()
	}
	return nil
}
