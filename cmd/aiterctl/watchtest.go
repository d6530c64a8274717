package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// watchTestLimit is how many elements a configuration may have that is tried
// after each edit.
const watchTestLimit = 64 << 10

// test compares the operators of modules with the reference.
func (w *watching) test(ctx context.Context, modules []string) {
	for _, op := range w.ops(modules) {
		if ctx.Err() != nil {
			return
		}
		f := &testFlags{accuracy: true}
		f.dtype, f.layout = w.flags.parts.dtype, allLayouts()
		if len(f.dtype) == 0 {
			f.dtype = allDTypes()
		}
		f.arch = w.testArch()
		small := func(name string, _ tensor.Device) ([]optests.Config, error) {
			named, err := optests.Configs(name)
			if err != nil {
				return nil, err
			}
			return f.vary(name, atMost(watchTestLimit, tensor.Host(), named), optests.ForComparison)
		}
		if _, err := small(op.Name, tensor.Host()); as[*optests.UnknownOpError](err) {
			continue // nobody has written its reference
		}
		quiet := *w.app
		quiet.quiet = true // it is built
		rep, err := quiet.tryOp(ctx, f, op.Name, small)
		if ctx.Err() == nil {
			w.tell.tested(op.Name, rep, err)
		}
	}
}

// testArch is the target to test: the only one, else what the machine has.
func (w *watching) testArch() string {
	if len(w.targets) == 1 {
		return w.targets[0].String()
	}
	return native
}

// enterKeys tells each line of the standard input; nil when there is none for
// this program. A terminal that another job has would stop whoever reads it.
func (a *app) enterKeys(ctx context.Context) <-chan struct{} {
	fd := int(os.Stdin.Fd())
	if term.IsTerminal(fd) {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
			return nil
		}
	}
	in := bufio.NewReader(os.Stdin)
	keys := make(chan struct{})
	go func() {
		for {
			if _, err := in.ReadString('\n'); errors.Is(err, io.EOF) || err != nil {
				return
			}
			select {
			case keys <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return keys
}
