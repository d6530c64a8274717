package jit

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"

	"github.com/aiter-go/aiter/internal/cache"
)

// retryFull frees space in the cache, and repeats the requests that failed because the disk
// is full. It repeats none if the cache has nothing to remove.
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
	m.observeTrim(rep, err)
	if !rep.Due {
		return
	}
	s := m.newSession()
	var wg sync.WaitGroup
	for _, i := range full {
		wg.Go(func() { results[i] = s.build(ctx, results[i].Request) })
	}
	wg.Wait()
}

// addDiskFullError joins a compiler's error about a full disk with an error that names the
// cache folder and the fix. It adds nothing after a signal, whose cause is uncertain.
func (m *Manager) addDiskFullError(err error) error {
	var access *cache.AccessError
	if errors.As(err, &access) || !diskIsFull(err) || killedByBus(err) {
		return err
	}
	return errors.Join(err, &cache.AccessError{Path: m.opts.Cache.Path(), Op: "write to", Err: syscall.ENOSPC})
}

// diskIsFull reports whether a build failed because the disk of the cache is full. The
// temporary files of compilers are in the cache folder too. A linker that maps its output gets
// SIGBUS.
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
