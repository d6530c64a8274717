package jit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/depfile"
	"github.com/aiter-go/aiter/internal/deps"
)

// failureRecord is what others learn of a compile or link that failed: those
// who waited for it, and, when it is the fault of what was compiled, whoever
// asks for the same again.
type failureRecord struct {
	ID     string            // of this failure: clocks may jump
	Time   time.Time         // when it was, for people
	Limit  time.Duration     // the time limit, when that was the reason
	Seen   map[string]string // files of the source tree, as far as known when it began
	Inputs *deps.Set         // all that it has read; nil when that or its fault is not certain
	Error  CompileError
}

// isNewerThan says whether the failure came after before was looked at.
func (f *failureRecord) isNewerThan(before *failureRecord) bool {
	return f != nil && (before == nil || f.ID != before.ID)
}

// cachedError is the error for who asks again.
func (f *failureRecord) cachedError() *CompileError {
	e := f.Error
	e.Remembered = f.Time
	return &e
}

// applies says whether this unit would fail likewise: it allows no more time,
// and the files have not been mended since.
func (u *unit) applies(f *failureRecord) bool {
	if f.Limit > 0 && u.timeout > f.Limit {
		return false
	}
	for p, digest := range f.Seen {
		if now, err := u.view.Digest(p); err != nil || now != digest {
			return false
		}
	}
	return true
}

// wouldRepeat says whether a compile now would read exactly what the failed one
// has read, so that it would fail again.
func (u *unit) wouldRepeat(f *failureRecord) bool {
	return f != nil && f.Inputs != nil &&
		u.check(f.Inputs.Tree).IsHit() && u.check(f.Inputs.System).IsHit()
}

// cachedFailure returns the error of an earlier compile of the same
// inputs, nil when there is none.
func (u *unit) cachedFailure() *CompileError {
	if f := u.lastFailure(); u.wouldRepeat(f) {
		return f.cachedError()
	}
	return nil
}

// failureWhileWaiting is what a unit that had to wait for the lock learns: the failure
// of before's successor, or of one that is remembered.
func (u *unit) failureWhileWaiting(before *failureRecord) *CompileError {
	f := u.lastFailure()
	switch {
	case f.isNewerThan(before) && u.applies(f):
		return &f.Error
	case u.wouldRepeat(f):
		return f.cachedError()
	}
	return nil
}

func (u *unit) lastFailure() *failureRecord { return loadFailure(u.m.opts.Cache, u.key) }

func loadFailure(store *cache.Dir, key cache.Key) *failureRecord {
	data, err := store.Get(cache.Failure, key)
	if err != nil {
		return nil
	}
	f := new(failureRecord)
	if json.Unmarshal(data, f) != nil {
		return nil
	}
	return f
}

// storeFailure is best effort: without the record the next one compiles.
func storeFailure(store *cache.Dir, key cache.Key, f failureRecord) {
	f.ID, f.Time = rand.Text(), time.Now()
	if data, err := json.Marshal(f); err == nil {
		_ = store.Put(cache.Failure, key, data)
	}
}

// failedRun is a compile that has just failed.
type failedRun struct {
	stage    *cache.Stage
	root     string
	command  command
	outcome  outcome
	baseline deps.Baseline
}

// failedInputs returns what a failed compile depends on, nil when that is not
// certain: then the next one compiles again.
func (u *unit) failedInputs(ctx context.Context, r failedRun) *deps.Set {
	if !isInputError(r.outcome) {
		return nil
	}
	read, ok := u.failedReads(ctx, r)
	if !ok {
		return nil
	}
	tree, system, read, err := u.view.Record(deps.Readings{Headers: read}, u.search(r.root))
	if err != nil || !u.addMissing(tree, system, read, r.outcome.output) {
		return nil
	}
	if r.baseline.ChangedFile(u.m.clock(), read) != "" {
		return nil
	}
	if now, err := u.m.opts.Finder.Find(ctx, u.target); err != nil || now.Digest != u.tc.Digest {
		return nil
	}
	v, err := deps.StoreSet(u.m.opts.Cache, tree, system)
	if err != nil {
		return nil
	}
	return &v
}

const (
	againObject  = "again.o"
	againDepFile = "again.d"
)

// failedReads returns what a failed compile has read. Compilers write their
// reports when the error is one of the language; when it is a header that is
// missing, GCC and nvcc write none, and are run once more to print each header.
func (u *unit) failedReads(ctx context.Context, r failedRun) ([]string, bool) {
	read, err := readDeps(r.stage)
	if errors.Is(err, os.ErrNotExist) {
		read, err = readHeaders(r.stage)
	}
	if err == nil && len(read) > 0 {
		return treePaths(read, r.root), true
	}
	c := r.command
	c.argv = u.argv(r.root, r.stage.File(againObject), r.stage.File(againDepFile))
	c.argv = slices.Insert(c.argv, 1, "-H")
	out, err := c.run(ctx)
	if err != nil || !isInputError(out) {
		return nil, false
	}
	read = append(depfile.ParseTrace(out.output), u.plan.Source)
	read = slices.DeleteFunc(read, func(p string) bool { return strings.HasPrefix(p, r.stage.Path+"/") })
	return treePaths(read, r.root), true
}

// readHeaders returns what Clang alone reports.
func readHeaders(stage *cache.Stage) ([]string, error) {
	data, err := deps.ReadReport(stage.File(headersFile))
	return depfile.ParseHeaders(data), err
}

// treePaths makes those relative that lie in the source tree.
func treePaths(read []string, root string) []string {
	for i := range read {
		read[i] = deps.InTree(read[i], root)
	}
	return read
}

// addMissing adds the names under which a missing header was looked for. It
// returns false when they are not all known, or one is there by now.
func (u *unit) addMissing(tree, system *deps.List, read []string, output []byte) bool {
	names, certain := missingHeaders(output)
	for _, name := range names {
		dirs := append(deps.TreeFolders(append(read, u.plan.Source)), u.headerFolders()...)
		for _, p := range read {
			if d := path.Dir(p); path.IsAbs(p) && !slices.Contains(dirs, d) {
				dirs = append(dirs, d)
			}
		}
		if path.IsAbs(name) {
			dirs, name = []string{path.Dir(name)}, path.Base(name)
		}
		for _, dir := range dirs {
			a, absent := u.view.FirstMissing(dir, name)
			if !absent {
				return false
			}
			l := deps.ListFor(a.Dir, tree, system)
			if !slices.Contains(l.Absent, a) {
				l.Absent = append(l.Absent, a)
			}
		}
	}
	return certain
}
