package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/process"
)

// maxAnswer bounds a compiler's reply to a query, in bytes. nvcc's longest reply has 20 kB.
const maxAnswer = 4 << 20

// reply is a compiler's output, and the names that it and its children looked up while it ran.
type reply struct {
	text  string
	trace *process.Trace // nil: the compiler could not be traced
	why   string         // why there is no trace; "" if there is one
}

// run runs the compiler. It kills a compiler that exceeds the time limit or prints too much, with all its children. It
// repeats a traced run that fails without the tracer, because set-user-ID programs, such as some installations of bwrap,
// fail if they are traced.
func (s *search) run(args []string) (reply, error) { return s.runBy((*process.Command).Trace, args) }

// runBy is like run. how runs the command the first time.
func (s *search) runBy(how func(*process.Command, context.Context) (*process.Trace, error), args []string) (reply, error) {
	dir, noDir := s.folder()
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	argv := append([]string{s.tc.Compiler}, args...)
	run := func(how func(*process.Command, context.Context) (*process.Trace, error)) (reply, error) {
		c := &process.Command{
			Argv: argv, Dir: cmp.Or(dir, "/"), Env: withTemp(s.tc.env, dir), Grace: 10 * time.Second,
			Output: &process.Buffer{Limit: maxAnswer, Strict: true},
		}
		trace, err := how(c, ctx)
		text := string(c.Output.Bytes())
		if dir != "" {
			text = strings.ReplaceAll(text, dir, "/aiter-probe")
		}
		return reply{text: text, trace: trace}, err
	}
	r, err := run(how)
	var over *process.OverflowError
	if err != nil && ctx.Err() == nil && !errors.As(err, &over) {
		traced, why := r.trace, err
		if r, err = run(untraced); err == nil {
			r.why = why.Error()
		} else {
			r.trace = traced
		}
	}
	if err == nil {
		return r, nil
	}
	if s.ctx.Err() != nil {
		return reply{}, fmt.Errorf("identify %s: %w", s.tc.Compiler, s.ctx.Err())
	}
	failed := &ProbeError{Command: argv, Output: r.text, Err: err}
	if ctx.Err() != nil { // the timeout of this query; a cancelled search has returned above
		failed.Timeout, failed.Err = s.timeout, errors.New("it was killed")
	} else if noDir != nil {
		return r, &TemporaryFolderError{Compiler: s.tc.Compiler, Err: noDir, Probe: failed}
	}
	return r, failed
}

// runTarget makes the query about the target.
func (s *search) runTarget() (reply, error) { return s.run(targetQuery(s.target)) }

// untraced runs a command without a trace.
func untraced(c *process.Command, ctx context.Context) (*process.Trace, error) {
	return nil, c.Run(ctx)
}

// runAll runs the compiler with several queries in parallel. It returns the error of the first query that failed.
func (s *search) runAll(queries ...[]string) ([]reply, error) {
	out, errs := make([]reply, len(queries)), make([]error, len(queries))
	var wg sync.WaitGroup
	for i, args := range queries {
		wg.Go(func() { out[i], errs[i] = s.run(args) })
	}
	wg.Wait()
	return out, cmp.Or(errs...)
}

// trial makes an empty library. The answers to the queries only name programs such as the assembler. The trial runs these
// programs, so that the trace contains the files that they look up. The trace of a failed trial is used too.
func (s *search) trial() (reply, error) {
	r, err := s.run(queriesFor(s.tc.Vendor).trial)
	var failed *ProbeError
	if errors.As(err, &failed) && failed.Timeout == 0 && !errors.As(err, new(*process.OverflowError)) {
		r.why, err = "it cannot make an empty library: "+failed.Error(), nil
	}
	return r, err
}

// tempFolder returns a function that creates the search's own folder for temporary files, and one that removes it. Names
// that compilers look up there do not affect the answer. The folder is "" if TMPDIR is missing or read-only: most
// compilers answer without temporary files.
func (s *search) tempFolder() (folder func() (string, error), remove func()) {
	made := ""
	folder = sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp(cmp.Or(lookupEnv(s.tc.env, "TMPDIR"), os.TempDir()), "aiter-probe-")
		if err != nil {
			return "", err
		}
		made = dir
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return real, nil
		}
		return dir, nil
	})
	return folder, func() {
		if made != "" {
			_ = os.RemoveAll(made) // on failure a few small files stay in TMPDIR
		}
	}
}

// withTemp returns the environment with dir as the folder for temporary files, unless dir is "".
func withTemp(env []string, dir string) []string {
	if dir == "" {
		return env
	}
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, "TMPDIR=") })
	return append(env, "TMPDIR="+dir)
}
