package profile

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/trace"
)

func file(name string) string { return filepath.Join("testdata", name+".csv") }

func mustImport(t testing.TB, names ...string) Profile {
	t.Helper()
	var files []string
	for _, n := range names {
		files = append(files, file(n))
	}
	p, err := Import(files...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The traces of one program become one timeline: copies, kernels and calls on their tracks. Correlation IDs relate calls to work.
func TestImportTraces(t *testing.T) {
	p := mustImport(t, "kernel_trace", "hip_api_trace", "memory_copy_trace", "agent_info")
	if p.Device != "AMD Instinct MI300X" || len(p.Parts) != 1 {
		t.Fatalf("device %q, %d parts", p.Device, len(p.Parts))
	}
	line := p.Parts[0].Timeline
	var tracks []string
	for _, track := range line.Tracks() {
		tracks = append(tracks, track.Device+"/"+track.Name())
	}
	if got, want := strings.Join(tracks, ", "), "/lane 1, /lane 2, agent 4/queue 1, agent 4/queue 1 (2), agent 4/copies"; got != want {
		t.Errorf("the tracks are %s, want %s", got, want)
	}
	flows := map[uint64]trace.Kind{}
	for _, s := range line.Spans {
		if s.Track.Device == "" {
			flows[s.Flow] = s.Kind
		}
	}
	for _, s := range line.Spans {
		want := map[trace.Kind]trace.Kind{trace.Kernel: trace.Launch, trace.Upload: trace.Queue, trace.Download: trace.Queue}[s.Kind]
		if s.Track.Device != "" && flows[s.Flow] != want {
			t.Errorf("%s follows from %s, want %s", s.Title(), flows[s.Flow], want)
		}
	}
	// 1816 us in all: 0 to 200 malloc, 210 to 680 upload, 700 to 800 kernel, 810 to 980 download, ...
	s := p.Parts[0].Shares()
	for g, want := range map[Group]time.Duration{Copies: 470 + 170 + 470, Allocations: 200 + 10 + 200, Kernels: 100 + 115, Waits: 1} {
		if got := s.Of(g).Time / time.Microsecond; got != want {
			t.Errorf("%s: %d us, want %d", g, got, want)
		}
	}
	if s.Total != 1816*time.Microsecond || sum(s) != s.Total {
		t.Errorf("the shares add up to %v of %v", sum(s), s.Total)
	}
}

func sum(s Shares) (d time.Duration) {
	for _, share := range s.List {
		d += share.Time
	}
	return d
}

// For statistics without a trace, shares are fractions of the sum of the times. Each finding has its figure.
func TestImportStats(t *testing.T) {
	p := mustImport(t, "kernel_stats", "hip_api_stats", "domain_stats")
	s := p.Parts[0].Shares()
	if !s.Summed || s.Total != 10900*time.Microsecond || math.Abs(s.Of(Copies).Fraction-7/10.9) > 1e-9 || s.Of(Allocations).Count != 200 {
		t.Errorf("the shares are %+v", s)
	}
	var found []string
	for _, f := range p.Parts[0].Findings() {
		found = append(found, f.What+": "+f.Figure)
	}
	want := []string{
		"Copies dominate: 64% of the time (7 ms); kernels 10%",
		"Memory is allocated and freed in the loop: 18% of the time (2 ms) in 200 calls, up to 120 µs each",
		"Kernels are tiny: 200 kernels take 5.5 µs on average",
	}
	if strings.Join(found, "\n") != strings.Join(want, "\n") {
		t.Errorf("findings:\n%s\nwant:\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

func TestImportCounters(t *testing.T) {
	p := mustImport(t, "counter_collection", "ncu")
	want := []Counter{
		{Kernel: "conv", Name: "SQ_WAVES", Runs: 2, Mean: 1536, Min: 1024, Max: 2048},
		{Kernel: "conv(Problem)", Name: "Duration", Unit: "ns", Runs: 1, Mean: 1250, Min: 1250, Max: 1250},
		{Kernel: "conv(Problem)", Name: "Memory Throughput", Unit: "%", Runs: 1, Mean: 91.5, Min: 91.5, Max: 91.5},
	}
	if len(p.Counter) != len(want) || len(p.Parts) != 0 {
		t.Fatalf("counters %+v, %d parts", p.Counter, len(p.Parts))
	}
	for i, c := range p.Counter {
		if c != want[i] {
			t.Errorf("counter %+v, want %+v", c, want[i])
		}
	}
}

func TestImportAllocations(t *testing.T) {
	items := mustImport(t, "memory_allocation_trace").Parts[0].Items()
	if len(items) != 2 || items[0].Kind != trace.Allocate || items[0].Bytes != 1<<20 || items[0].Total != 180*time.Microsecond {
		t.Errorf("items %+v", items)
	}
}

// Wrong files are errors with file, line and column.
func TestImportErrors(t *testing.T) {
	text, err := os.ReadFile(file("kernel_trace"))
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	stats := "Name,Calls,TotalDurationNs,MinNs,MaxNs\n"
	for _, c := range []struct{ text, want string }{
		{"", "f.csv: the file is empty"},
		{"a,b\n1,2\n", "f.csv:1: no known columns; expected the heading of rocprofv3 counters (Kernel_Name, Counter_Name"},
		{"a,a\n", `f.csv:1:3: two columns have the name "a"`},
		{strings.Replace(good, "5001700000", "soon", 1), `f.csv:3:83: Start_Timestamp is "soon"; expected a whole number`},
		{strings.Replace(good, "5000700000", "-1", 1), `f.csv:2:83: Start_Timestamp is "-1"`},
		{strings.Replace(good, "5000800000", "5000600000", 1), "f.csv:2:94: End_Timestamp 5000600000 is before Start_Timestamp 5000700000"},
		{strings.Replace(good, `,22,"fill(`, `,22,"fi"ll(`, 1), "f.csv:4:"},
		{good + "1,2\n", "f.csv:5:1: not CSV: wrong number of fields"},
		{stats + "k,0,1,1,1\n", `f.csv:2:7: "k" has 0 calls`},
		{stats + "k,1,1,2,1\n", `f.csv:2:7: "k" has 1 calls, MinNs 2 and MaxNs 1`},
		{"==PROF== x\n\n" + stats + "k,x,1,1,1\n", `f.csv:4:3: Calls is "x"`},
		{"Kernel_Name,Counter_Name,Counter_Value\nk,c,NaN\n", `f.csv:2:5: Counter_Value is "NaN"; expected a number`},
	} {
		imp := &importer{agents: map[string]string{}, counters: counters{}}
		err := imp.read("f.csv", strings.NewReader(c.text))
		var e *ImportError
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.60q: error %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := Import("none.csv"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestAPIKinds(t *testing.T) {
	for name, want := range map[string]trace.Kind{
		"hipMalloc": trace.Allocate, "hipHostMalloc": trace.Allocate, "hipMallocAsync": trace.Allocate, "hipFreeAsync": trace.Free,
		"hipHostFree": trace.Free, "hipMemcpy": trace.Copy, "hipMemcpyHtoD": trace.Upload, "hipMemcpyDtoH": trace.Download,
		"hipMemcpyHtoDAsync": trace.Queue, "hipMemcpyAsync": trace.Queue, "hipMemsetAsync": trace.Queue, "hipLaunchKernel": trace.Launch,
		"hipModuleLaunchKernel": trace.Launch, "hipGraphLaunch": trace.Queue, "hipStreamSynchronize": trace.Wait,
		"__hipRegisterFatBinary": trace.Load, "hipModuleLoadData": trace.Load, "hipGetLastError": trace.API, "hipMemGetInfo": trace.API,
	} {
		if got := apiKind(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// FuzzImport reads any text without a panic; what it accepts can be drawn.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.csv")
	if err != nil || len(files) < 10 {
		f.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		imp := &importer{agents: map[string]string{}, counters: counters{}}
		if err := imp.read("f.csv", strings.NewReader(text)); err != nil {
			var e *ImportError
			if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "f.csv") {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		checkDrawn(t, imp.profile())
	})
}
