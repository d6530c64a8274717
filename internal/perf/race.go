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

// A race compares several ways to call an operator. Each round calls every way once, in a new random order, so that a slow change of
// the machine affects all of them alike. Times are compared in pairs, round by round, with the sign test: it makes no assumption about
// their distribution. A way that is significantly slower than the best one leaves the race.
const (
	raceWarmups   = 2
	leastRounds   = 8
	mostRounds    = 48
	heatLevel     = 0.01  // of the test with which a way leaves
	finalLevel    = 0.001 // of the test between the best way and the plan
	finalRounds   = 100
	leastGain     = 0.02 // of a choice over the plan: less is not worth a deviation from it
	hopelessRatio = 1.5  // over the best median, after hopelessAfter rounds
	hopelessAfter = 4
)

// RaceResult is the result of [Meter.Race].
type RaceResult struct {
	Best   int           // the position of the chosen way, 0 for the plan
	Rounds int           // of the final, or of the heats if the plan has won them
	Plan   time.Duration // medians of these rounds
	Chosen time.Duration
}

// Race times ways to call an operator on a case; the first one is the plan. The caches hold none of a call's tensors. The way that
// wins the heats is chosen if a final, of times of its own, finds it faster than the plan beyond doubt, and by leastGain. The errors
// are those of [Meter.Measure].
func (m *Meter) Race(ctx context.Context, op optests.Declaration, c optests.Case, ways []Call) (r RaceResult, err error) {
	bytes, err := op.Traffic(c)
	if err != nil {
		return r, err
	}
	sets, err := m.upload(op, c, m.tensorSets(bytes))
	defer func() { err = errors.Join(err, free(sets)) }()
	if err != nil {
		return r, err
	}
	t := &race{m: m, ways: ways, sets: sets, times: make([][]time.Duration, len(ways)), order: rand.New(rand.NewPCG(1, 2))}
	defer func() { err = errors.Join(err, m.destroy(t.pairs)) }()
	if t.pairs, err = m.newEventPairs(len(ways)); err != nil {
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
	m     *Meter
	ways  []Call
	sets  []*optests.Uploaded
	pairs []eventPair // one for each way
	times [][]time.Duration
	calls int
	order *rand.Rand
}

func (t *race) warmUp(ctx context.Context) error {
	for range raceWarmups {
		for _, way := range t.ways {
			if err := t.call(ctx, way); err != nil {
				return err
			}
		}
	}
	return t.m.opts.Driver.Synchronize(t.m.stream)
}

// call calls a way with the next set of tensors.
func (t *race) call(ctx context.Context, way Call) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.calls++
	return way(ctx, t.sets[t.calls%len(t.sets)].Args)
}

func (t *race) run(ctx context.Context) (r RaceResult, err error) {
	best, rounds, err := t.heats(ctx)
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

// heats returns the way with the least median when no other one is left, or after mostRounds.
func (t *race) heats(ctx context.Context) (best, rounds int, err error) {
	alive := make([]int, len(t.ways))
	for i := range alive {
		alive[i] = i
	}
	for rounds = 1; ; rounds++ {
		if err := t.round(ctx, alive); err != nil {
			return 0, rounds, err
		}
		best = slices.MinFunc(alive, func(a, b int) int { return int(median(t.times[a]) - median(t.times[b])) })
		alive = slices.DeleteFunc(alive, func(i int) bool { return i != best && i != 0 && t.leaves(i, best, rounds) })
		if left := len(alive); rounds == mostRounds || rounds >= leastRounds && (left == 1 || left == 2 && best != 0) {
			return best, rounds, nil
		}
	}
}

// leaves reports whether a way is slower than the best one, beyond doubt.
func (t *race) leaves(i, best, rounds int) bool {
	if rounds >= hopelessAfter && float64(median(t.times[i])) > hopelessRatio*float64(median(t.times[best])) {
		return true
	}
	return rounds >= leastRounds && slower(t.times[i], t.times[best]) < heatLevel
}

// final returns the way if it is faster than the plan, otherwise the plan, 0. Its times replace those of the heats, which chose the
// way because its times were short.
func (t *race) final(ctx context.Context, way int) (best, rounds int, err error) {
	t.times[0], t.times[way] = nil, nil
	for rounds = 1; rounds <= finalRounds; rounds++ {
		if err := t.round(ctx, []int{0, way}); err != nil {
			return 0, rounds, err
		}
		if rounds < leastRounds {
			continue
		}
		if slower(t.times[way], t.times[0]) < finalLevel {
			return 0, rounds, nil
		}
		if rounds >= 2*leastRounds && slower(t.times[0], t.times[way]) < finalLevel {
			break
		}
	}
	rounds = min(rounds, finalRounds)
	faster := slower(t.times[0], t.times[way]) < finalLevel
	if gain := 1 - float64(median(t.times[way]))/float64(median(t.times[0])); faster && gain >= leastGain {
		return way, rounds, nil
	}
	return 0, rounds, nil
}

// round times each of the ways once.
func (t *race) round(ctx context.Context, ways []int) error {
	order := slices.Clone(ways)
	t.order.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	s := t.m.opts.schedule()
	for k, i := range order {
		if err := t.m.timeCall(s, 0, t.pairs[k], func() error { return t.call(ctx, t.ways[i]) }); err != nil {
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

// slower is the probability that chance alone makes a slower than b in as many rounds as it was, if both are equally fast.
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

// atLeast is the probability of k heads or more in n throws of a coin.
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

func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
