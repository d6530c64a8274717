package jit

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
)

// retryFull builds those again, once, that have failed because the disk is
// full, when the cache has something to remove.
func (m *Manager) retryFull(ctx context.Context, results []Result) {
	var full []int
	for i, r := range results {
		if diskIsFull(r.Err) {
			full = append(full, i)
		}
	}
	if len(full) == 0 || ctx.Err() != nil {
		return
	}
	defer func() {
		for _, i := range full {
			results[i].Err = m.addDiskFullError(results[i].Err)
		}
	}()
	rep, err := m.opts.Cache.FreeSpace(ctx)
	m.observeTrim(zerolog.Ctx(ctx), rep, err)
	if !rep.Due {
		return
	}
	s := &session{m: m, views: map[string]*deps.View{}}
	var wg sync.WaitGroup
	for _, i := range full {
		wg.Go(func() { results[i] = s.build(ctx, results[i].Request) })
	}
	wg.Wait()
}

// addDiskFullError adds to what a compiler says of a full disk that it is the cache's, and
// what to do. After a signal that is a guess, and not said.
func (m *Manager) addDiskFullError(err error) error {
	var access *cache.AccessError
	if errors.As(err, &access) || !diskIsFull(err) || killedByBus(err) {
		return err
	}
	return errors.Join(err, &cache.AccessError{Path: m.opts.Cache.Path(), Op: "write to", Err: syscall.ENOSPC})
}

// diskIsFull says whether a build failed for want of room: the temporary files of
// compilers are in the cache's folder, too. A linker that has mapped its output
// gets SIGBUS.
func diskIsFull(err error) bool {
	if isFull(err) {
		return true
	}
	var e *CompileError
	if !errors.As(err, &e) || !e.Remembered.IsZero() {
		return false
	}
	words := []string{syscall.ENOSPC.Error(), syscall.EDQUOT.Error()}
	return containsAny(strings.ToLower(e.Output), words) || containsAny(e.Reason, words) || killedByBus(err)
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func killedByBus(err error) bool {
	var e *CompileError
	return errors.As(err, &e) && strings.Contains(e.Reason, syscall.SIGBUS.String())
}
