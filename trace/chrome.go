package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// chromeEvent is an event of the Chrome trace event format. Times are in microseconds.
type chromeEvent struct {
	Name     string   `json:"name"`
	Category string   `json:"cat,omitempty"`
	Phase    string   `json:"ph"`
	Time     *float64 `json:"ts,omitempty"`
	Length   *float64 `json:"dur,omitempty"`
	Process  int      `json:"pid"`
	Thread   int      `json:"tid"`
	ID       uint64   `json:"id,omitempty"`
	Bind     string   `json:"bp,omitempty"`
	Args     any      `json:"args,omitempty"`
}

// chromeName is the argument of an event that names a process or a thread.
type chromeName struct {
	Name string `json:"name"`
}

// chromeArgs are the details of a span.
type chromeArgs struct {
	Device string `json:"device,omitempty"`
	Detail string `json:"detail,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	Call   uint64 `json:"call,omitempty"`
	Failed bool   `json:"failed,omitempty"`
}

// WriteChrome writes the timeline in the Chrome trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
// In it the host is a process with a thread for each lane, and a device is a process with a thread for each stream. Arrows lead
// from launches to kernels.
func (t *Timeline) WriteChrome(w io.Writer) error {
	out := bufio.NewWriter(w)
	c := chromeWriter{out: out, threads: map[Track]chromeThread{}}
	c.text(`{"displayTimeUnit":"ns","otherData":{"begin":"` + t.Begin.UTC().Format(time.RFC3339Nano) + `"},"traceEvents":[`)
	c.nameTracks(t.Tracks())
	ends := map[uint64]Span{}
	for _, s := range t.Spans {
		if s.Flow != 0 && s.Track.Device != "" {
			ends[s.Flow] = s
		}
	}
	for _, s := range t.Spans {
		c.span(s)
		if end, ok := ends[s.Flow]; ok && s.Track.Device == "" {
			c.arrow(s, end)
		}
	}
	c.text("]}\n")
	if c.err != nil {
		return fmt.Errorf("write trace: %w", c.err)
	}
	return out.Flush()
}

// chromeThread has the numbers of the process and the thread of a track.
type chromeThread struct{ process, thread int }

// chromeWriter writes events and keeps its first error.
type chromeWriter struct {
	out     *bufio.Writer
	threads map[Track]chromeThread
	some    bool // an event was written
	err     error
}

func (c *chromeWriter) text(s string) {
	if c.err == nil {
		_, c.err = c.out.WriteString(s)
	}
}

func (c *chromeWriter) event(e chromeEvent) {
	data, err := json.Marshal(e)
	if c.err == nil {
		c.err = err
	}
	if c.some {
		c.text(",\n")
	}
	c.some = true
	c.text(string(data))
}

// nameTracks gives each track a process and a thread with names.
func (c *chromeWriter) nameTracks(tracks []Track) {
	processes := map[string]int{}
	for _, t := range tracks {
		p, known := processes[t.Device]
		if !known {
			p = len(processes) + 1
			processes[t.Device] = p
			name := "host"
			if t.Device != "" {
				name = "device " + t.Device
			}
			c.event(chromeEvent{Name: "process_name", Phase: "M", Process: p, Args: chromeName{name}})
		}
		at := chromeThread{p, len(c.threads) + 1}
		c.threads[t] = at
		c.event(chromeEvent{Name: "thread_name", Phase: "M", Process: at.process, Thread: at.thread, Args: chromeName{t.Name()}})
	}
}

// Name returns the track's name: "lane 1", "default stream", "stream 0x7f00".
func (t Track) Name() string {
	switch {
	case t.Label != "":
		return t.Label
	case t.Device == "":
		return fmt.Sprintf("lane %d", t.ID+1)
	case t.ID == 0:
		return "default stream"
	}
	return fmt.Sprintf("stream %#x", t.ID)
}

func (c *chromeWriter) span(s Span) {
	at := c.threads[s.Track]
	c.event(chromeEvent{
		Name: s.Title(), Category: string(s.Kind), Phase: "X", Time: microseconds(s.Start), Length: microseconds(s.Length),
		Process: at.process, Thread: at.thread,
		Args: chromeArgs{Device: s.Device, Detail: s.Detail, Bytes: s.Bytes, Call: s.Call, Failed: s.Failed},
	})
}

// arrow connects a span of the host with the device's work.
func (c *chromeWriter) arrow(from, to Span) {
	a, b := c.threads[from.Track], c.threads[to.Track]
	e := chromeEvent{Name: "queued", Category: "flow", ID: from.Flow}
	e.Phase, e.Time, e.Process, e.Thread = "s", microseconds(from.Start), a.process, a.thread
	c.event(e)
	e.Phase, e.Bind, e.Time, e.Process, e.Thread = "f", "e", microseconds(to.Start), b.process, b.thread
	c.event(e)
}

// Title returns the kind and the name of the span.
func (s Span) Title() string {
	if s.Name == "" {
		return string(s.Kind)
	}
	return string(s.Kind) + " " + s.Name
}

func microseconds(d time.Duration) *float64 {
	us := float64(d) / 1e3
	return &us
}
