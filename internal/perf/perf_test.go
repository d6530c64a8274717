package perf_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/perf"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

func TestStats(t *testing.T) {
	if got := perf.NewStats(nil); got != (perf.Stats{}) {
		t.Errorf("of nothing: %+v", got)
	}
	times := make([]time.Duration, 0, 11)
	for i := range 11 {
		times = append(times, time.Duration(10-i)*10*time.Microsecond)
	}
	want := perf.Stats{Mean: 50, Min: 0, Median: 50, P20: 20, P80: 80, Calls: 11}
	if got := perf.NewStats(times); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	two := perf.NewStats([]time.Duration{10 * time.Microsecond, 20 * time.Microsecond})
	if math.Abs(two.P20-12) > 1e-9 || two.Median != 15 {
		t.Errorf("of 10 and 20: %+v", two)
	}
	m := perf.Measurement{Stats: perf.Stats{Median: 2}, Bytes: 8000}
	if m.GBps() != 4 {
		t.Errorf("8,000 bytes in 2 us are %g GB/s, want 4", m.GBps())
	}
	if none := (perf.Measurement{Bytes: 1}); none.GBps() != 0 || none.CopyFraction() != 0 {
		t.Error("no time is an infinite bandwidth")
	}
	m.Copy.Median = 1
	if m.CopyFraction() != 0.5 {
		t.Errorf("a copy of 1 us is %g of a call of 2 us, want 0.5", m.CopyFraction())
	}
}

// spy is a GPU that logs the queued work. Its clock counts the entries of the log.
type spy struct {
	device.Driver
	log    []string
	at     map[*device.Event]int
	frees  int
	events []*device.Event
}

func newSpy() *spy {
	return &spy{Driver: device.OpenHost(), at: map[*device.Event]int{}}
}

func (s *spy) Alloc(int, int64) (*tensor.Storage, error) { return s.Driver.Alloc(0, 64) }

func (s *spy) Free(m *tensor.Storage) error { s.frees++; return s.Driver.Free(m) }

func (s *spy) CopyAsync(device.Stream, device.Region, device.Region) error {
	s.log = append(s.log, "copy")
	return nil
}

func (s *spy) NewEvent(int) (*device.Event, error) {
	e, err := s.Driver.NewEvent(0)
	s.events = append(s.events, e)
	return e, err
}

// open returns the number of events that were not closed.
func (s *spy) open() (n int) {
	for _, e := range s.events {
		if e.Close() == nil {
			n++
		}
	}
	return n
}

func (s *spy) Record(e *device.Event, _ device.Stream) error {
	s.log, s.at[e] = append(s.log, "event"), len(s.log)
	return nil
}

func (s *spy) Synchronize(device.Stream) error { s.log = append(s.log, "wait"); return nil }

func (s *spy) Elapsed(from, to *device.Event) (time.Duration, error) {
	return time.Duration(s.at[to]-s.at[from]) * time.Microsecond, nil
}

func tiny() optests.Case {
	return optests.Case{Params: optests.Conv1d{Batch: 1, Dim: 2, Seqlen: 4, Width: 2}}
}

// fwd is the declaration of an operator.
func fwd(t *testing.T) optests.Declaration {
	t.Helper()
	d, err := optests.Lookup("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func gpu() tensor.Device { return tensor.Device{Type: tensor.CUDA} }

// On a GPU the caches are flushed before each timed call and outside of the measured time. With
// Warm they are not flushed.
func TestQueueOrder(t *testing.T) {
	for _, c := range []struct {
		warm bool
		want string
	}{
		{false, "copy copy wait copy event copy event copy event copy event copy event copy event wait " +
			"call call wait copy event call event copy event call event copy event call event wait"},
		{true, "copy copy wait copy copy event copy event event copy event event copy event wait " +
			"call call wait copy call event call event event call event event call event wait"},
	} {
		s := newSpy()
		b, err := perf.Open(perf.Options{Driver: s, Device: gpu(), Warmups: 2, Iterations: 3, Warm: c.warm})
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.Measure(t.Context(), fwd(t), tiny(), func(context.Context, []any) error {
			s.log = append(s.log, "call")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.log, " "); got != c.want {
			t.Errorf("warm %v: queued\n%s, want\n%s", c.warm, got, c.want)
		}
		if m.Median != 2 || m.Calls != 3 || m.CopyFraction() != 1 {
			t.Errorf("warm %v: %+v, want 2 us each: an event and the call", c.warm, m)
		}
		if err := b.Close(); err != nil || s.frees != 4 {
			t.Errorf("warm %v: %v, %d storages freed", c.warm, err, s.frees)
		}
		if n := s.open(); n != 0 || len(s.events) == 0 {
			t.Errorf("warm %v: %d of %d events left", c.warm, n, len(s.events))
		}
	}
}

func TestFailures(t *testing.T) {
	boom := errors.New("boom")
	s := newSpy()
	b, err := perf.Open(perf.Options{Driver: s, Device: gpu(), Iterations: 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Measure(t.Context(), fwd(t), tiny(), func(context.Context, []any) error { return boom })
	if n := s.open(); !errors.Is(err, boom) || n != 0 {
		t.Errorf("a call that fails gives %v; %d events left", err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err = b.Measure(ctx, fwd(t), tiny(), func(context.Context, []any) error { calls++; cancel(); return nil })
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("interrupted: %v after %d calls", err, calls)
	}
	if _, err := b.Measure(t.Context(), fwd(t), optests.Case{}, nil); err == nil {
		t.Error("a case without sizes was measured")
	}
	for _, o := range []perf.Options{{Warmups: -1, Iterations: 1}, {Iterations: 0}} {
		var bad *perf.OptionsError
		if _, err := perf.Open(o); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func openHost(t *testing.T, warm bool) *perf.Meter {
	t.Helper()
	b, err := perf.Open(perf.Options{Driver: device.OpenHost(), Device: tensor.Host(), Warmups: 1, Iterations: 5, Warm: warm})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// On the CPU a cold call does not use the tensors of the previous call.
func TestHostRotates(t *testing.T) {
	for _, warm := range []bool{false, true} {
		var seen []*tensor.Tensor
		b := openHost(t, warm)
		m, err := b.Measure(t.Context(), fwd(t), tiny(), func(_ context.Context, args []any) error {
			seen = append(seen, args[1].(*tensor.Tensor))
			time.Sleep(time.Millisecond)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		different := len(slices.Compact(seen))
		if len(seen) != 6 || m.Min < 1000 || (different == 1) != warm {
			t.Errorf("warm %v: %d calls on %d sets, shortest %g us", warm, len(seen), different, m.Min)
		}
	}
}

func TestHostCopy(t *testing.T) {
	got, err := openHost(t, false).CopyGBps(t.Context())
	if err != nil || got < 0.1 || got > 1e4 {
		t.Errorf("%g GB/s, %v", got, err)
	}
}
