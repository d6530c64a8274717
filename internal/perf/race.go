package perf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	optests "github.com/aiter-go/aiter/op_tests"
)

// A race compares several candidates: calls of one operator with different launch parameters. Each round calls every candidate once, in a
// new random order, so that a slow change of the machine affects all of them equally. The sign test compares the times of two candidates
// round by round; it makes no assumption about their distribution. A candidate that is significantly slower than the best one is
// eliminated.
const (
	raceWarmups    = 2
	leastRounds    = 8
	mostRounds     = 48
	eliminateLevel = 0.01  // of the test that eliminates a candidate
	finalLevel     = 0.001 // of the test between the best candidate and the plan
	finalRounds    = 100
	leastGain      = 0.02 // fraction of the plan's time that a candidate must save to replace the plan
	slowRatio      = 1.5  // a candidate with a median of more than this times the best one is eliminated after slowRounds
	slowRounds     = 4
)

// RaceResult is the result of [Meter.Race].
type RaceResult struct {
	Best   int           // the index of the chosen candidate, 0 for the plan
	Rounds int           // of the final, or of the elimination if the plan was the best candidate in it
	Plan   time.Duration // the median of the plan in these rounds
	Chosen time.Duration // the median of the chosen candidate in these rounds
}

// Race times candidates on a case; the first one is the plan. Before a call the caches hold none of its tensors. First it eliminates slow
// candidates. Then it compares the best one with the plan in a final, with new times. It chooses the candidate if that is significantly
// faster, by 2% or more, else the plan. The errors are those of [Meter.Measure].
func (m *Meter) Race(ctx context.Context, op optests.Declaration, c optests.Case, candidates []Call) (r RaceResult, err error) {
	bytes, err := op.Traffic(c)
	if err != nil {
		return r, err
	}
	sets, err := m.upload(op, c, m.tensorSets(bytes))
	defer func() { err = errors.Join(err, free(sets)) }()
	if err != nil {
		return r, err
	}
	t := &race{m: m, candidates: candidates, sets: sets, times: make([][]time.Duration, len(candidates)), order: rand.New(rand.NewPCG(1, 2))}
	defer func() { err = errors.Join(err, m.destroy(t.pairs)) }()
	if t.pairs, err = m.newEventPairs(len(candidates)); err != nil {
		return r, err
	}
	if err := t.warmUp(ctx); err != nil {
		return r, fmt.Errorf("time %s: %w", op.Name(), err)
	}
	if r, err = t.run(ctx); err != nil {
		return r, fmt.Errorf("time %s: %w", op.Name(), err)
	}
	return r, nil
}

// race is one call of Race.
type race struct {
	m          *Meter
	candidates []Call
	sets       []*optests.Uploaded
	pairs      []eventPair // one for each candidate
	times      [][]time.Duration
	calls      int
	order      *rand.Rand
}

func (t *race) warmUp(ctx context.Context) error {
	for range raceWarmups {
		for _, candidate := range t.candidates {
			if err := t.call(ctx, candidate); err != nil {
				return err
			}
		}
	}
	return t.m.opts.Driver.Synchronize(t.m.stream)
}

// call calls a candidate with the next set of tensors.
func (t *race) call(ctx context.Context, candidate Call) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.calls++
	return candidate(ctx, t.sets[t.calls%len(t.sets)].Args)
}

func (t *race) run(ctx context.Context) (r RaceResult, err error) {
	best, rounds, err := t.eliminate(ctx)
	if err != nil {
		return r, err
	}
	if best != 0 {
		if best, rounds, err = t.final(ctx, best); err != nil {
			return r, err
		}
	}
	plan := median(t.times[0])
	return RaceResult{Best: best, Rounds: rounds, Plan: plan, Chosen: median(t.times[best])}, nil
}

// eliminate returns the candidate with the least median when no other one is left, or after mostRounds.
func (t *race) eliminate(ctx context.Context) (best, rounds int, err error) {
	left := make([]int, len(t.candidates))
	for i := range left {
		left[i] = i
	}
	for rounds = 1; ; rounds++ {
		if err := t.round(ctx, left); err != nil {
			return 0, rounds, err
		}
		best = slices.MinFunc(left, func(a, b int) int { return int(median(t.times[a]) - median(t.times[b])) })
		left = slices.DeleteFunc(left, func(i int) bool { return i != best && i != 0 && t.isSlower(i, best, rounds) })
		if n := len(left); rounds == mostRounds || rounds >= leastRounds && (n == 1 || n == 2 && best != 0) {
			return best, rounds, nil
		}
	}
}

// isSlower reports whether a candidate is significantly slower than the best one.
func (t *race) isSlower(i, best, rounds int) bool {
	if rounds >= slowRounds && float64(median(t.times[i])) > slowRatio*float64(median(t.times[best])) {
		return true
	}
	return rounds >= leastRounds && slower(t.times[i], t.times[best]) < eliminateLevel
}

// final returns the candidate if it is faster than the plan, otherwise the plan, 0. Its times replace those of the elimination, which
// chose the candidate because its times were short.
func (t *race) final(ctx context.Context, candidate int) (best, rounds int, err error) {
	t.times[0], t.times[candidate] = nil, nil
	for rounds = 1; rounds <= finalRounds; rounds++ {
		if err := t.round(ctx, []int{0, candidate}); err != nil {
			return 0, rounds, err
		}
		if rounds < leastRounds {
			continue
		}
		if slower(t.times[candidate], t.times[0]) < finalLevel {
			return 0, rounds, nil
		}
		if rounds >= 2*leastRounds && slower(t.times[0], t.times[candidate]) < finalLevel {
			break
		}
	}
	rounds = min(rounds, finalRounds)
	faster := slower(t.times[0], t.times[candidate]) < finalLevel
	if gain := 1 - float64(median(t.times[candidate]))/float64(median(t.times[0])); faster && gain >= leastGain {
		return candidate, rounds, nil
	}
	return 0, rounds, nil
}

// round times each of some candidates once.
func (t *race) round(ctx context.Context, candidates []int) error {
	order := slices.Clone(candidates)
	t.order.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	s := t.m.opts.schedule()
	for k, i := range order {
		if err := t.m.timeCall(s, 0, t.pairs[k], func() error { return t.call(ctx, t.candidates[i]) }); err != nil {
			return err
		}
	}
	took, err := t.m.elapsed(t.pairs[:len(order)])
	if err != nil {
		return err
	}
	for k, i := range order {
		t.times[i] = append(t.times[i], took[k])
	}
	return nil
}

// slower returns the p-value of the sign test for times of the same rounds: if a and b were equally fast, it is the probability that a
// would be slower in at least as many rounds as it was.
func slower(a, b []time.Duration) float64 {
	n, wins := 0, 0
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			n++
		}
		if a[i] > b[i] {
			wins++
		}
	}
	return atLeast(wins, n)
}

// atLeast returns the probability of k heads or more in n throws of a coin.
func atLeast(k, n int) float64 {
	logFactorial := func(n int) float64 {
		v, _ := math.Lgamma(float64(n + 1))
		return v
	}
	sum := 0.0
	for i := k; i <= n; i++ {
		sum += math.Exp(logFactorial(n) - logFactorial(i) - logFactorial(n-i) - float64(n)*math.Ln2)
	}
	return min(sum, 1)
}

// median returns the median, 0 for no times.
func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
