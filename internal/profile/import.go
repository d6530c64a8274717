package profile

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/trace"
)

// importer collects the contents of the files of a profiler.
type importer struct {
	spans    []trace.Span // with the times of the profiler
	stats    []Item
	counters counters
	agents   map[string]string // names by ID
	found    []string          // the kinds of the files
}

// format is a kind of file: the columns that identify it, and the function that reads a row.
type format struct {
	name    string
	columns []string
	read    func(*importer, *table) error
}

// formats lists the files that Import reads, the more specific ones first.
func formats() []format {
	const start, end = "Start_Timestamp", "End_Timestamp"
	return []format{
		{"rocprofv3 counters", []string{"Kernel_Name", "Counter_Name", "Counter_Value"}, (*importer).counterRow},
		{"rocprofv3 kernel trace", []string{"Kernel_Name", "Correlation_Id", start, end}, (*importer).kernelRow},
		{"rocprofv3 API trace", []string{"Domain", "Function", "Thread_Id", start, end}, (*importer).apiRow},
		{"rocprofv3 memory copy trace", []string{"Direction", "Source_Agent_Id", "Destination_Agent_Id", start, end}, (*importer).copyRow},
		{"rocprofv3 memory allocation trace", []string{"Operation", "Allocation_Size", start, end}, (*importer).allocationRow},
		{"rocprofv3 statistics", []string{"Name", "Calls", "TotalDurationNs", "MinNs", "MaxNs"}, (*importer).statsRow},
		{"rocprofv3 agents", []string{"Node_Id", "Agent_Type", "Name"}, (*importer).agentRow},
		{"ncu metrics", []string{"Kernel Name", "Metric Name", "Metric Unit", "Metric Value"}, (*importer).ncuRow},
	}
}

// Import reads CSV files of rocprofv3 (traces of kernels, HIP calls, memory copies and allocations, statistics, counters, agents) and of
// ncu (--csv). A file's columns determine its kind, not its name. The errors are *ImportError and those of the files.
func Import(files ...string) (Profile, error) {
	imp := &importer{agents: map[string]string{}, counters: counters{}}
	for _, name := range files {
		if err := imp.file(name); err != nil {
			return Profile{}, err
		}
	}
	return imp.profile(), nil
}

func (imp *importer) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer f.Close()
	return imp.read(name, f)
}

// read reads one file.
func (imp *importer) read(name string, r io.Reader) error {
	in, skipped, err := skipMessages(bufio.NewReader(r))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	t, err := newTable(name, in, skipped)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(formats(), func(f format) bool { return t.has(f.columns...) })
	if i < 0 {
		return &ImportError{File: name, Line: 1 + skipped, Reason: "no known columns; expected the heading of " + knownFormats()}
	}
	f := formats()[i]
	for {
		more, err := t.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if err := f.read(imp, t); err != nil {
			return err
		}
	}
	imp.found = append(imp.found, f.name)
	return nil
}

// knownFormats lists the formats with their columns.
func knownFormats() string {
	var list []string
	for _, f := range formats() {
		list = append(list, fmt.Sprintf("%s (%s)", f.name, strings.Join(f.columns, ", ")))
	}
	return strings.Join(list, "; ")
}

// skipMessages skips the lines of ncu before its table, which begin with "==", and empty lines.
func skipMessages(in *bufio.Reader) (io.Reader, int, error) {
	for skipped := 0; ; skipped++ {
		start, err := in.Peek(2)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		if !bytes.Equal(start, []byte("==")) && !bytes.HasPrefix(start, []byte("\n")) && !bytes.Equal(start, []byte("\r\n")) {
			return in, skipped, nil
		}
		for {
			_, err := in.ReadSlice('\n')
			if err == nil || errors.Is(err, io.EOF) {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return nil, 0, err
			}
		}
	}
}

// profile returns the profile of the files.
func (imp *importer) profile() Profile {
	p := Profile{Counter: imp.counters.list(), Origin: "imported: " + strings.Join(distinct(imp.found), ", ")}
	part := Part{Title: "Calls", Stats: imp.stats}
	if len(imp.spans) > 0 {
		part.Timeline = imp.timeline()
	}
	var names []string
	for _, name := range imp.agents {
		names = append(names, name)
	}
	slices.Sort(names)
	p.Device = strings.Join(distinct(names), ", ")
	if len(imp.spans) > 0 || len(imp.stats) > 0 {
		p.Parts = []Part{part}
	}
	return p
}

// distinct returns the words once each.
func distinct(words []string) []string {
	var list []string
	for _, w := range words {
		if !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return list
}

// timeline returns the timeline of the spans. Their times begin at 0, and spans of one device that overlap are on different tracks.
func (imp *importer) timeline() *trace.Timeline {
	first := imp.spans[0].Start
	copies := slices.ContainsFunc(imp.spans, func(s trace.Span) bool { return s.Track.Device != "" && groupOf(s.Kind) == Copies })
	for _, s := range imp.spans {
		first = min(first, s.Start)
	}
	slices.SortStableFunc(imp.spans, func(a, b trace.Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Length, a.Length))
	})
	rec := trace.New(trace.Options{Limit: len(imp.spans)})
	ends := map[trace.Track][]time.Duration{}
	for _, s := range imp.spans {
		s.Start -= first
		if s.Track.Device != "" {
			s.Track = idleTrack(ends, s)
			s.Device = s.Track.Device
		} else if copies && groupOf(s.Kind) == Copies {
			s.Kind = trace.Queue // the trace of the copies has the work
		}
		rec.Add(s)
	}
	line := rec.Timeline()
	line.Begin = time.Time{}
	return line
}

// idleTrack returns the first track of the span's queue on which no span is open. Kernels of one queue may overlap, so a queue may have
// several tracks.
func idleTrack(ends map[trace.Track][]time.Duration, s trace.Span) trace.Track {
	list := ends[s.Track]
	i := slices.IndexFunc(list, func(end time.Duration) bool { return end <= s.Start })
	if i < 0 {
		i = len(list)
		list = append(list, 0)
	}
	list[i] = s.End()
	ends[s.Track] = list
	track := s.Track
	if i > 0 {
		track.Label = fmt.Sprintf("%s (%d)", track.Label, i+1)
	}
	return track
}
