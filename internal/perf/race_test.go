package perf_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/perf"
)

// sleeper returns a candidate whose call takes d.
func sleeper(d time.Duration) perf.Call {
	return func(context.Context, []any) error {
		for start := time.Now(); time.Since(start) < d; { // time.Sleep is not exact enough
		}
		return nil
	}
}

func TestRace(t *testing.T) {
	us := func(list ...int) (candidates []perf.Call) {
		for _, n := range list {
			candidates = append(candidates, sleeper(time.Duration(n)*time.Microsecond))
		}
		return candidates
	}
	for what, c := range map[string]struct {
		candidates []perf.Call
		best       int
	}{
		"the plan alone":                {us(50), 0},
		"a faster candidate":            {us(200, 300, 100, 150), 2},
		"slower candidates":             {us(100, 130, 300), 0},
		"candidates that differ little": {us(100, 100, 100, 100), 0},
	} {
		b := openHost(t, true)
		r, err := b.Race(t.Context(), fwd(t), tiny(), c.candidates)
		if err != nil || r.Best != c.best || r.Plan <= 0 || r.Chosen <= 0 || r.Rounds < 8 || (r.Best == 0) != (r.Plan == r.Chosen) {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
}

func TestRaceErrors(t *testing.T) {
	b := openHost(t, true)
	bad := errors.New("bad")
	fails := func(context.Context, []any) error { return bad }
	if _, err := b.Race(t.Context(), fwd(t), tiny(), []perf.Call{sleeper(0), fails}); !errors.Is(err, bad) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	stops := func(context.Context, []any) error {
		if calls++; calls == 5 {
			cancel(bad)
		}
		return nil
	}
	if _, err := b.Race(ctx, fwd(t), tiny(), []perf.Call{stops}); !errors.Is(err, bad) {
		t.Error(err)
	}
}
