package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aiter-go/aiter/trace"
)

// kernelRow reads a row of kernel_trace.csv.
func (imp *importer) kernelRow(t *table) error {
	start, length, err := t.times()
	if err != nil {
		return err
	}
	flow, err := t.integer("Correlation_Id")
	if err != nil {
		return err
	}
	imp.spans = append(imp.spans, trace.Span{
		Kind: trace.Kernel, Name: t.text("Kernel_Name"), Start: start, Length: length, Flow: uint64(flow), Detail: t.dispatch(),
		Track: trace.Track{Device: agent(t.text("Agent_Id")), ID: trackID(t.text("Queue_Id")), Label: "queue " + t.text("Queue_Id")},
	})
	return nil
}

// dispatch describes the sizes of a kernel.
func (t *table) dispatch() string {
	if !t.has("Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z") {
		return ""
	}
	size := func(name string) string {
		return t.text(name+"_X") + "x" + t.text(name+"_Y") + "x" + t.text(name+"_Z")
	}
	return fmt.Sprintf("grid %s, workgroup %s", size("Grid_Size"), size("Workgroup_Size"))
}

// agent returns the name of a device in the timeline: "agent 2" or "gpu 0". The files have "2", "Agent 2" or "GPU 0".
func agent(id string) string {
	if id == "" {
		return "device"
	}
	if _, err := strconv.Atoi(id); err == nil {
		return "agent " + id
	}
	return strings.ToLower(id)
}

// trackID returns the number of a queue or a thread, 0 for a word that is not a number.
func trackID(word string) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// apiRow reads a row of hip_api_trace.csv.
func (imp *importer) apiRow(t *table) error {
	start, length, err := t.times()
	if err != nil {
		return err
	}
	thread, err := t.integer("Thread_Id")
	if err != nil {
		return err
	}
	name := t.text("Function")
	span := trace.Span{Kind: apiKind(name), Name: name, Start: start, Length: length, Track: trace.Track{ID: uint64(thread)}}
	return imp.addSpan(t, span)
}

// addSpan adds the span of a row. If the file has correlation IDs, the span has the ID that relates the host's call to the device's
// work.
func (imp *importer) addSpan(t *table, span trace.Span) error {
	if t.has("Correlation_Id") {
		flow, err := t.integer("Correlation_Id")
		if err != nil {
			return err
		}
		span.Flow = uint64(flow)
	}
	imp.spans = append(imp.spans, span)
	return nil
}

// apiKind returns the kind of a call of HIP, HSA or CUDA.
func apiKind(name string) trace.Kind {
	word := strings.TrimPrefix(strings.TrimLeft(name, "_"), "hip")
	if strings.Contains(word, "Async") && (strings.Contains(word, "Memcpy") || strings.Contains(word, "Memset")) {
		return trace.Queue
	}
	for _, k := range []struct {
		kind  trace.Kind
		parts []string
	}{
		{trace.Free, []string{"Free"}},
		{trace.Allocate, []string{"Malloc", "HostAlloc", "MemAlloc"}},
		{trace.Queue, []string{"GraphLaunch"}},
		{trace.Upload, []string{"MemcpyHtoD"}},
		{trace.Download, []string{"MemcpyDtoH"}},
		{trace.Copy, []string{"Memcpy", "Memset"}},
		{trace.Launch, []string{"Launch"}},
		{trace.Wait, []string{"Synchronize", "StreamWaitEvent"}},
		{trace.Load, []string{"RegisterFatBinary", "RegisterFunction", "RegisterVar", "ModuleLoad"}},
	} {
		if slices.ContainsFunc(k.parts, func(part string) bool { return strings.Contains(word, part) }) {
			return k.kind
		}
	}
	return trace.API
}

// copyRow reads a row of memory_copy_trace.csv.
func (imp *importer) copyRow(t *table) error {
	start, length, err := t.times()
	if err != nil {
		return err
	}
	kind, device := copyKind(t.text("Direction")), t.text("Destination_Agent_Id")
	if kind == trace.Download {
		device = t.text("Source_Agent_Id")
	}
	span := trace.Span{
		Kind: kind, Name: shortCopy(t.text("Direction")), Start: start, Length: length,
		Track: trace.Track{Device: agent(device), ID: 1 << 32, Label: "copies"},
	}
	return imp.addSpan(t, span)
}

// copyKind returns the kind of a direction: "MEMORY_COPY_HOST_TO_DEVICE", in older files "HOST_TO_DEVICE".
func copyKind(direction string) trace.Kind {
	switch shortCopy(direction) {
	case "host to device":
		return trace.Upload
	case "device to host":
		return trace.Download
	}
	return trace.Copy
}

// shortCopy returns "host to device".
func shortCopy(direction string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(direction, "MEMORY_COPY_"), "_", " "))
}

// allocationRow reads a row of memory_allocation_trace.csv.
func (imp *importer) allocationRow(t *table) error {
	start, length, err := t.times()
	if err != nil {
		return err
	}
	bytes, err := t.integer("Allocation_Size")
	if err != nil {
		return err
	}
	kind := trace.Allocate
	if strings.Contains(t.text("Operation"), "FREE") {
		kind = trace.Free
	}
	imp.spans = append(imp.spans, trace.Span{
		Kind: kind, Name: "memory of " + agent(t.text("Agent_Id")), Start: start, Length: length, Bytes: bytes,
		Track: trace.Track{ID: trackID(t.text("Thread_Id"))},
	})
	return nil
}

// domains returns the names in domain_stats.csv, whose rows sum up those of the other files.
func domains() []string {
	return []string{"HIP_API", "HSA_API", "MARKER_API", "KERNEL_DISPATCH", "MEMORY_COPY", "MEMORY_ALLOCATION", "SCRATCH_MEMORY", "RCCL_API",
		"ROCDECODE_API", "ROCJPEG_API"}
}

// statsRow reads a row of kernel_stats.csv, hip_api_stats.csv, hip_stats.csv or memory_copy_stats.csv.
func (imp *importer) statsRow(t *table) error {
	name := t.text("Name")
	if slices.Contains(domains(), name) {
		return nil
	}
	item := Item{Kind: statsKind(name), Name: name}
	for _, f := range []struct {
		column string
		to     *time.Duration
	}{{"TotalDurationNs", &item.Total}, {"MinNs", &item.Min}, {"MaxNs", &item.Max}} {
		n, err := t.integer(f.column)
		if err != nil {
			return err
		}
		*f.to = time.Duration(n)
	}
	var err error
	if item.Count, err = t.integer("Calls"); err != nil {
		return err
	}
	if item.Min > item.Max || item.Count == 0 {
		return t.wrong(t.columns["MinNs"], fmt.Sprintf("%q has %d calls, MinNs %d and MaxNs %d", name, item.Count, item.Min, item.Max), nil)
	}
	if item.Kind == trace.Upload || item.Kind == trace.Download || strings.HasPrefix(name, "MEMORY_COPY_") {
		item.Name = shortCopy(name)
	}
	imp.stats = append(imp.stats, item)
	return nil
}

// statsKind returns the kind of a name: a function of an API, a direction of copies, else a kernel.
func statsKind(name string) trace.Kind {
	bare := strings.TrimLeft(name, "_")
	switch {
	case strings.HasPrefix(name, "MEMORY_COPY_"):
		return copyKind(name)
	case len(bare) > 3 && strings.HasPrefix(bare, "hip") && bare[3] >= 'A' && bare[3] <= 'Z' && !strings.ContainsAny(bare, "(<"):
		return apiKind(name)
	case strings.HasPrefix(name, "hsa_"):
		return trace.API
	}
	return trace.Kernel
}

// agentRow reads a row of agent_info.csv.
func (imp *importer) agentRow(t *table) error {
	if t.text("Agent_Type") == "GPU" {
		imp.agents[t.text("Node_Id")] = cmp.Or(t.text("Product_Name"), t.text("Name"))
	}
	return nil
}
