package toolchain

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/process"
)

// acceptTimeout bounds the compile of nothing that shows whether a compiler accepts a flag.
const acceptTimeout = time.Minute

// Accepted returns the groups of flags that the compiler accepts. It asks for each group by a compile of nothing, once for the
// content of the toolchain: the memo keeps the answer. A compiler that refuses a flag exits with an error; if it does so without the
// flag too, the error is a *ProbeError.
func (tc *Toolchain) Accepted(ctx context.Context, groups [][]string) ([][]string, error) {
	var accepted [][]string
	for _, flags := range groups {
		yes, err := tc.accepts(ctx, flags)
		if err != nil {
			return nil, err
		}
		if yes {
			accepted = append(accepted, flags)
		}
	}
	return accepted, nil
}

func (tc *Toolchain) accepts(ctx context.Context, flags []string) (bool, error) {
	key := "accepts\x00" + tc.Digest + "\x00" + strings.Join(flags, "\x00")
	if tc.memo != nil {
		if known, ok := tc.memo.Get(key); ok {
			return known == "yes", nil
		}
	}
	err := tc.compileNothing(ctx, flags)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() { // and was not killed
		if err := tc.compileNothing(ctx, nil); err != nil {
			return false, err
		}
	} else if err != nil {
		return false, err
	}
	answer := "yes"
	if err != nil {
		answer = "no"
	}
	if tc.memo != nil {
		tc.memo.Put(key, answer)
	}
	return err == nil, nil
}

// compileNothing compiles an empty file with flags. The error is a *ProbeError, or that of ctx.
func (tc *Toolchain) compileNothing(ctx context.Context, flags []string) error {
	argv := slices.Concat([]string{tc.Compiler}, queriesFor(tc.Vendor).accept, flags)
	c := &process.Command{Argv: argv, Dir: "/", Env: tc.Environ(), Grace: 10 * time.Second, Timeout: acceptTimeout,
		Output: &process.Buffer{Limit: maxAnswer, Strict: true}}
	err := c.Run(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &ProbeError{Command: argv, Output: string(c.Output.Bytes()), Err: err}
	}
	return nil
}
