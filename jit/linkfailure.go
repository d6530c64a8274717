package jit

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/depfile"
)

// failedLink is a link that has just failed.
type failedLink struct {
	stage    *cache.Stage
	command  command
	outcome  outcome
	tried    depfile.Tries
	baseline baseline
}

// fail leaves the linker's words for those who wait, and for those who ask for
// the same again.
func (l *link) fail(ctx context.Context, r failedLink) error {
	c, out := r.command, r.outcome
	e := CompileError{Module: l.mod.Name, Target: l.target.String(), Command: c.argv, Dir: c.dir, Reason: out.reason, Output: string(out.output)}
	e.Log = writeLog(l.m.opts.Cache, l.key, &e)
	f := failureRecord{Inputs: l.failedInputs(ctx, r), Error: e}
	if out.late {
		f.Limit = c.timeout
	}
	storeFailure(l.m.opts.Cache, l.key, f)
	return &e
}

// failedInputs returns what a failed link depends on beside its key, nil when
// that is not certain: then the next one links again.
func (l *link) failedInputs(ctx context.Context, r failedLink) *depSet {
	if !isInputError(r.outcome) {
		return nil
	}
	if !l.namesFiles() {
		return &depSet{} // all that was linked is part of the key
	}
	if !l.saysAll(r) {
		return nil
	}
	l.view = newFSView(l.view.tree, l.view.memo, l.view.tc)
	all, missing, unknown := l.withMembers(inStage(r.tried.Found, r.stage))
	absent, changed := l.lookedFor(all, r.tried, r.stage)
	absent = append(absent, absences(missing)...)
	root, err := l.view.tree.Dir(ctx)
	if changed != "" || unknown != nil || err != nil {
		return nil
	}
	read := treePaths(l.others(all, r.stage), root)
	tree, system, readable := l.lists(read, absent, root)
	if !readable || r.baseline.changedFile(l.m.clock(), read) != "" {
		return nil
	}
	v, err := storeDepSet(l.m.opts.Cache, tree, system)
	if err != nil {
		return nil
	}
	return &v
}

// saysAll says whether it is known of each file where a failed linker looked
// for it.
func (l *link) saysAll(r failedLink) bool {
	if r.tried.Vain {
		return true
	}
	_, libs := librarySearch(l.flags)
	for _, name := range missingLibraries(r.outcome.output) {
		if !slices.ContainsFunc(libs, func(names []string) bool { return slices.Contains(names, "lib"+name+".a") }) {
			return false
		}
	}
	return len(r.tried.Found) > 0 && !looksMissing(string(r.outcome.output))
}

// missingLibraries are those that LLD has not found.
func missingLibraries(output []byte) []string {
	var names []string
	form := regexp.MustCompile(`unable to find library -l(\S+)`)
	for line := range bytes.Lines(output) {
		if m := form.FindSubmatch(line); m != nil {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// namesFiles says whether the flags may name files.
func (l *link) namesFiles() bool { return slices.ContainsFunc(l.flags, namesFile) }

// namesFile says whether a link flag may name a file: a library, a script.
func namesFile(flag string) bool {
	return strings.ContainsAny(flag, "./") || strings.HasPrefix(flag, "-l") || strings.HasPrefix(flag, "-L") || strings.HasPrefix(flag, "-T") || !strings.HasPrefix(flag, "-")
}

// wouldRepeat says whether a link now would fail as that one did.
func (l *link) wouldRepeat(f *failureRecord) bool {
	switch {
	case f == nil || f.Inputs == nil:
		return false
	case *f.Inputs == depSet{}:
		return true
	}
	store := l.m.opts.Cache
	return l.view.checkStored(store, f.Inputs.Tree, linkedFile) == "" && l.view.checkStored(store, f.Inputs.System, linkedFile) == ""
}

func (l *link) lastFailure() *failureRecord { return loadFailure(l.m.opts.Cache, l.key) }

// failureWhileWaiting is what a link that had to wait for the lock learns.
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
