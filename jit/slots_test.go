package jit

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/aiter-go/aiter/internal/toolchain"
)

// queued starts a taker for each rank, which come in this order, and returns
// the ranks in the order in which they get a slot.
func queued(s *slots, arrived func(), ranks ...int) (order func() []int) {
	got := make(chan int, len(ranks))
	for _, rank := range ranks {
		go func() {
			if err := s.take(context.Background(), rank, arrived); err == nil {
				got <- rank
				s.release()
			}
		}()
		synctest.Wait()
	}
	return func() []int {
		synctest.Wait()
		close(got)
		var list []int
		for rank := range got {
			list = append(list, rank)
		}
		return list
	}
}

func TestSlotsByRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		order := queued(s, s.reserve(5), 3, 1, 2, linkRank, 1)
		if got, want := order(), []int{linkRank, 1, 1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
	})
}

func TestSlotsFirstComeOfEqualRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		first, second := s.enter(4), s.enter(4)
		synctest.Wait()
		select {
		case <-second.ready:
			t.Error("the second was served before the first")
		case <-first.ready:
		}
	})
}

// TestSlotsOfTwoGroups has one group that is not complete: nobody is served.
func TestSlotsOfTwoGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		other := s.reserve(1)
		order := queued(s, s.reserve(2), 1, 0)
		if s.free != 2 || len(s.waiting) != 2 {
			t.Errorf("%d free, %d waiting, while a group is not complete", s.free, len(s.waiting))
		}
		other()
		if got := order(); len(got) != 2 || s.free != 2 {
			t.Errorf("served %v, %d free after it", got, s.free)
		}
	})
}

func TestSlotsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		nobody := func() {}
		if err := s.take(context.Background(), 0, nobody); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		end := make(chan error)
		go func() { end <- s.take(ctx, 0, nobody) }()
		synctest.Wait()
		cancel()
		if err := <-end; err == nil {
			t.Error("a cancelled wait ended with a slot")
		}
		s.release()
		w := s.enter(0) // served at once, and gives up all the same
		s.leave(w)
		if s.free != 1 || len(s.waiting) != 0 {
			t.Errorf("%d free, %d waiting, want one and none", s.free, len(s.waiting))
		}
	})
}

func TestRankOfPasses(t *testing.T) {
	var ranks []int
	for i := range 3 {
		ranks = append(ranks, rank(i, 3, toolchain.Host), rank(i, 3, toolchain.Device))
	}
	if want := []int{5, 0, 4, 1, 3, 2}; !slices.Equal(ranks, want) {
		t.Errorf("ranks %v, want %v: device passes first, host passes from the last one on", ranks, want)
	}
}
