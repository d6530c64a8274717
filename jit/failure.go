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
	"github.com/aiter-go/aiter/internal/process"
)

// failureRecord stores a failed compile or link for processes that wait for its lock. If the
// inputs caused the failure, later builds with the same inputs use the record too.
type failureRecord struct {
	ID     string            // unique, because clocks may jump
	Time   time.Time         // of the failure, for people
	Seen   map[string]string // path -> digest: known files of the source tree when the compiler started
	Inputs *deps.Set         // all inputs; nil if they are unknown, or if they may not have caused the failure
	Error  CompileError
}

// differsFrom reports whether f is a failure and another one than before.
func (f *failureRecord) differsFrom(before *failureRecord) bool {
	return f != nil && (before == nil || f.ID != before.ID)
}

// cachedError returns the error of a recorded failure, marked as remembered.
func (f *failureRecord) cachedError() *CompileError {
	e := f.Error
	e.Remembered = f.Time
	return &e
}

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

// storeFailure ignores errors: without the record the next build compiles.
func storeFailure(store *cache.Dir, key cache.Key, f failureRecord) {
	f.ID, f.Time = rand.Text(), time.Now()
	if data, err := json.Marshal(f); err == nil {
		_ = store.Put(cache.Failure, key, data)
	}
}

// failedRun is a failed compile.
type failedRun struct {
	stage    *cache.Stage
	on       deps.Folders // of the sources
	command  *process.Command
	outcome  outcome
	baseline deps.Baseline
}

// failedInputs returns the dependencies of a failed compile. It returns nil if they are
// uncertain; the next build then compiles again.
func (u *unit) failedInputs(ctx context.Context, r failedRun) *deps.Set {
	if !isInputError(r.outcome) {
		return nil
	}
	read, ok := u.failedReads(ctx, r)
	if !ok {
		return nil
	}
	tree, system, read, err := u.view.Record(deps.Readings{Headers: read}, u.search(r.on))
	if err != nil || !u.addMissing(tree, system, read, r.outcome.output) {
		return nil
	}
	if r.baseline.ChangedFile(u.m.clock(), read) != "" {
		return nil
	}
	if now, err := u.m.opts.Finder.Find(ctx, u.req.Target); err != nil || now.Digest != u.tc.Digest {
		return nil
	}
	set, err := deps.StoreSet(u.m.opts.Cache, tree, system)
	if err != nil {
		return nil
	}
	return &set
}

// Outputs of the second run of a failed compile.
const (
	secondObject  = "second.o"
	secondDepFile = "second.d"
)

// failedReads returns the files that a failed compile read; false if they are unknown.
// Compilers write their reports after an error in the source text. GCC and nvcc write none
// if a header is missing. A second run with -H then prints the name of each header.
func (u *unit) failedReads(ctx context.Context, r failedRun) ([]string, bool) {
	read, err := readDeps(r.stage)
	if errors.Is(err, os.ErrNotExist) {
		read, err = readHeaders(r.stage)
	}
	if err == nil && len(read) > 0 {
		return u.inTree(read, r.on), true
	}
	argv := slices.Insert(u.argv(r.on, r.stage.File(secondObject), r.stage.File(secondDepFile)), 1, "-H")
	c := newCommand(argv, r.command.Dir, r.command.Env, r.command.Timeout)
	out, err := outcomeOf(ctx, c, c.Run(ctx))
	if err != nil || !isInputError(out) {
		return nil, false
	}
	read = append(depfile.ParseTrace(out.output), u.source.Source)
	read = slices.DeleteFunc(read, func(p string) bool { return strings.HasPrefix(p, r.stage.Path+"/") })
	return u.inTree(read, r.on), true
}

// readHeaders returns the headers in Clang's CC_PRINT_HEADERS_FILE.
func readHeaders(stage *cache.Stage) ([]string, error) {
	data, err := deps.ReadReport(stage.File(headersFile))
	return depfile.ParseHeaders(data), err
}

// addMissing adds to the lists the names under which a missing header was looked up. It
// returns false if some of them are unknown, or if one of them now exists.
func (u *unit) addMissing(tree, system *deps.List, read []string, output []byte) bool {
	names, certain := missingHeaders(output)
	for _, name := range names {
		dirs := append(deps.TreeFolders(append(read, u.source.Source)), u.headerFolders()...)
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
