package trace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/trace"
)

// A nil recorder records nothing and allocates nothing.
func TestNil(t *testing.T) {
	var r *trace.Recorder
	allocs := testing.AllocsPerRun(100, func() {
		span := r.Begin(trace.Host, "x")
		span.Bytes = 1
		span.End(nil)
		r.Add(span.Span)
	})
	if allocs != 0 || r.Now() != 0 || r.NewID() != 0 || len(r.Timeline().Spans) != 0 {
		t.Errorf("a nil recorder made %v allocations, time %v, spans %v", allocs, r.Now(), r.Timeline().Spans)
	}
	r.OnRead(nil)()
	r.Reset()
}

func TestLimit(t *testing.T) {
	r := trace.New(trace.Options{Limit: 3})
	for i := range 5 {
		r.Add(trace.Span{Kind: trace.Host, Start: time.Duration(i), Length: 1})
	}
	line := r.Timeline()
	if from, to := line.Window(); len(line.Spans) != 3 || line.Dropped != 2 || from != 2 || to != 5 {
		t.Errorf("%d spans from %d to %d, dropped %d; want the newest 3, from 2 to 5", len(line.Spans), from, to, line.Dropped)
	}
	r.Reset()
	if line := r.Timeline(); len(line.Spans) != 0 || line.Dropped != 0 {
		t.Errorf("after Reset: %+v", line)
	}
}

// Spans of one goroutine share a lane. Goroutines that run at the same time have different lanes, and later ones get lanes that are free.
func TestLanes(t *testing.T) {
	r := trace.New(trace.Options{})
	work := func(name string) {
		outer := r.Begin(trace.Call, name)
		inner := r.Begin(trace.Launch, name)
		inner.End(errors.New("refused"))
		outer.End(nil)
	}
	work("main")
	var started, wg sync.WaitGroup
	started.Add(4)
	for range 4 {
		wg.Go(func() {
			outer := r.Begin(trace.Host, "parallel")
			started.Done()
			started.Wait()
			work("parallel")
			outer.End(nil)
		})
	}
	wg.Wait()
	for range 4 {
		wg.Go(func() { work("later") })
		wg.Wait()
	}
	line := r.Timeline()
	checkNesting(t, line)
	lanes := map[string]map[uint64]bool{}
	for _, s := range line.Spans {
		if lanes[s.Name] == nil {
			lanes[s.Name] = map[uint64]bool{}
		}
		lanes[s.Name][s.Track.ID] = true
		if s.Failed != (s.Kind == trace.Launch) || s.Failed && s.Detail != "refused" {
			t.Errorf("a span has the error %t %q", s.Failed, s.Detail)
		}
	}
	if len(lanes["parallel"]) != 4 || len(line.Tracks()) > 5 {
		t.Errorf("the lanes are %v", lanes)
	}
	for lane := range lanes["later"] {
		if !lanes["main"][lane] && !lanes["parallel"][lane] {
			t.Errorf("lane %d was free; the lanes are %v", lane, lanes)
		}
	}
}

// checkNesting verifies that spans of a track are nested or apart.
func checkNesting(t *testing.T, line *trace.Timeline) {
	t.Helper()
	open := map[trace.Track][]trace.Span{}
	for _, s := range line.Spans {
		stack := open[s.Track]
		for len(stack) > 0 && stack[len(stack)-1].End() <= s.Start {
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 && stack[len(stack)-1].End() < s.End() {
			t.Errorf("%+v overlaps with %+v", s, stack[len(stack)-1])
		}
		open[s.Track] = append(stack, s)
	}
}

// Work of a device begins neither before its launch nor before the work that precedes it in its stream.
func TestDeviceOrder(t *testing.T) {
	r := trace.New(trace.Options{})
	gpu := trace.Track{Device: "cuda:0"}
	remove := r.OnRead(func() {
		r.Add(trace.Span{Kind: trace.Kernel, Start: 90, Length: 20, Flow: 1, Track: gpu})
		r.Add(trace.Span{Kind: trace.Kernel, Start: 105, Length: 20, Flow: 2, Track: gpu})
	})
	r.Add(trace.Span{Kind: trace.Launch, Start: 100, Length: 3, Flow: 1})
	r.Add(trace.Span{Kind: trace.Launch, Start: 104, Length: 3, Flow: 2})
	line := r.Timeline()
	remove()
	var got []time.Duration
	for _, s := range line.Spans {
		if s.Kind == trace.Kernel {
			got = append(got, s.Start, s.End())
		}
	}
	if want := []time.Duration{100, 110, 110, 125}; !slices.Equal(got, want) {
		t.Errorf("the kernels have %v, want %v", got, want)
	}
	if again := r.Timeline(); len(again.Spans) != len(line.Spans) {
		t.Error("a removed function was called")
	}
}

// A track has the name that it had when its work was queued.
func TestNameTrack(t *testing.T) {
	r := trace.New(trace.Options{})
	gpu := trace.Track{Device: "cuda:0", ID: 0x7f}
	pending := 0
	defer r.OnRead(func() {
		for ; pending > 0; pending-- {
			r.Add(trace.Span{Kind: trace.Upload, Track: gpu})
		}
	})()
	for _, name := range []string{"uploads", "", "kernels"} {
		r.NameTrack(gpu, name)
		pending++
	}
	var got []string
	for _, s := range r.Timeline().Spans {
		got = append(got, s.Track.Name())
	}
	if want := []string{"uploads", "stream 0x7f", "kernels"}; !slices.Equal(got, want) {
		t.Errorf("the tracks are %q, want %q", got, want)
	}
	(*trace.Recorder)(nil).NameTrack(gpu, "x")
}

// Goroutines record, read and reset at the same time.
func TestConcurrent(t *testing.T) {
	r := trace.New(trace.Options{Limit: 100})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				span := r.Begin(trace.Call, "op")
				span.Call, span.Flow = r.NewID(), r.NewID()
				span.End(nil)
				switch i {
				case 0:
					checkNesting(t, r.Timeline())
				case 1:
					r.Reset()
				}
			}
		})
	}
	wg.Wait()
}

// event is a trace event with the members that the format defines.
type event struct {
	Name, Cat, Ph, Bp string
	Ts, Dur           *float64
	Pid, Tid          *int
	ID                any
	Args              map[string]any
}

// The file follows the trace event format and the rules of Perfetto's importer.
func TestChrome(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteChrome(&b); err != nil {
		t.Fatal(err)
	}
	events := readChrome(t, b.Bytes())
	names, slices := map[[2]int]string{}, map[[2]int][]event{}
	starts, ends := map[any]event{}, map[any]event{}
	for _, e := range events {
		if e.Pid == nil || e.Tid == nil || e.Name == "" {
			t.Fatalf("an event has no process, thread or name: %+v", e)
		}
		at := [2]int{*e.Pid, *e.Tid}
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				names[at] = e.Args["name"].(string)
			}
		case "X":
			if e.Ts == nil || e.Dur == nil || *e.Dur < 0 || e.Cat == "" || names[at] == "" {
				t.Errorf("incomplete: %+v in %q", e, names[at])
			}
			slices[at] = append(slices[at], e)
		case "s":
			starts[e.ID] = e
		case "f":
			if e.Bp != "e" {
				t.Errorf("an arrow does not bind to the enclosing slice: %+v", e)
			}
			ends[e.ID] = e
		default:
			t.Errorf("phase %q", e.Ph)
		}
	}
	if len(starts) != 2 || len(ends) != 2 {
		t.Errorf("%d and %d ends of arrows, want 2", len(starts), len(ends))
	}
	for id, from := range starts {
		to := ends[id]
		if *to.Ts < *from.Ts || !inside(from, slices) || !inside(to, slices) {
			t.Errorf("the arrow %v leads from %v to %v, or from or to no slice", id, *from.Ts, *to.Ts)
		}
	}
	if !bytes.Contains(b.Bytes(), []byte(`"name":"device cuda:0"`)) || !bytes.Contains(b.Bytes(), []byte(`"name":"stream 0x7f"`)) {
		t.Errorf("a name is missing in\n%s", &b)
	}
}

// inside reports whether the end of an arrow is in a slice of its thread.
func inside(e event, slices map[[2]int][]event) bool {
	for _, s := range slices[[2]int{*e.Pid, *e.Tid}] {
		if *s.Ts <= *e.Ts && *e.Ts <= *s.Ts+*s.Dur {
			return true
		}
	}
	return false
}

func readChrome(t *testing.T, data []byte) []event {
	t.Helper()
	var file struct {
		TraceEvents []event
	}
	in := json.NewDecoder(bytes.NewReader(data))
	if err := in.Decode(&file); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) || len(file.TraceEvents) == 0 {
		t.Fatalf("text after the object: %v; %d events", err, len(file.TraceEvents))
	}
	return file.TraceEvents
}

// sample has two calls on two lanes, whose kernels run on one stream.
func sample() *trace.Timeline {
	r := trace.New(trace.Options{})
	stream := trace.Track{Device: "cuda:0", ID: 0x7f}
	for i := range uint64(2) {
		at := time.Duration(i) * 5 * time.Microsecond
		host := trace.Track{ID: 100 + i}
		r.Add(trace.Span{Kind: trace.Call, Name: "op \"quoted\" <b>", Start: at, Length: 20 * time.Microsecond, Call: i + 1, Track: host})
		r.Add(trace.Span{Kind: trace.Launch, Name: "op", Start: at + 1e3, Length: 2 * time.Microsecond, Flow: i + 1, Track: host})
		r.Add(trace.Span{Kind: trace.Kernel, Name: "op", Start: at + 4e3, Length: 9 * time.Microsecond, Flow: i + 1, Track: stream})
	}
	return r.Timeline()
}

// An error of the writer is returned.
func TestChromeWriteError(t *testing.T) {
	if err := sample().WriteChrome(failing{}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func BenchmarkSpan(b *testing.B) {
	for name, r := range map[string]*trace.Recorder{"nil": nil, "recorded": trace.New(trace.Options{})} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				span := r.Begin(trace.Host, "x")
				span.End(nil)
			}
		})
	}
}
