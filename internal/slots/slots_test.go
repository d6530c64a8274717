package slots

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// queued starts a goroutine for each rank, in this order, and returns the ranks
// in the order in which they get a slot.
func queued(s *Pool, enqueued func(), ranks ...int) (order func() []int) {
	got := make(chan int, len(ranks))
	for _, rank := range ranks {
		go func() {
			if err := s.Acquire(context.Background(), rank, enqueued); err == nil {
				got <- rank
				s.Release()
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
		s := New(1)
		order := queued(s, s.Reserve(5), 3, 1, 2, -1, 1)
		if got, want := order(), []int{-1, 1, 1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
	})
}

func TestSlotsOfEqualRankInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		first, second := s.enqueue(4), s.enqueue(4)
		synctest.Wait()
		select {
		case <-second.ready:
			t.Error("the second was served before the first")
		case <-first.ready:
		}
	})
}

// TestSlotsOfTwoGroups checks that no waiter gets a slot while a group is incomplete.
func TestSlotsOfTwoGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		other := s.Reserve(1)
		order := queued(s, s.Reserve(2), 1, 0)
		if s.free != 2 || len(s.waiting) != 2 {
			t.Errorf("%d free, %d waiting while a group is incomplete", s.free, len(s.waiting))
		}
		other()
		if got := order(); len(got) != 2 || s.free != 2 {
			t.Errorf("served %v, %d free after it", got, s.free)
		}
	})
}

func TestCancelledWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		ignore := func() {}
		if err := s.Acquire(context.Background(), 0, ignore); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		end := make(chan error)
		go func() { end <- s.Acquire(ctx, 0, ignore) }()
		synctest.Wait()
		cancel()
		if err := <-end; err == nil {
			t.Error("a cancelled wait ended with a slot")
		}
		s.Release()
		w := s.enqueue(0) // gets a slot at once and is then cancelled
		s.cancel(w)
		if s.free != 1 || len(s.waiting) != 0 {
			t.Errorf("%d free, %d waiting, want one and none", s.free, len(s.waiting))
		}
	})
}
