// Package profile shows where the time of operator calls goes: shares of copies, allocations, kernels and gaps, the items that
// take longest, and findings. It reads a timeline of package trace, or the CSV files of the vendors' profilers, and writes one
// self-contained HTML page.
package profile

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/aiter-go/aiter/trace"
)

// Profile is a measurement.
type Profile struct {
	Title   string
	Device  string // its name, "" if unknown
	Origin  string // how it was measured
	Parts   []Part
	Counter []Counter
}

// Part is a section of a profile: a period with its timeline, or statistics without the times of single events.
type Part struct {
	Title    string
	Timeline *trace.Timeline // nil for statistics alone
	Stats    []Item          // from files of statistics; they replace the items that spans of the same kinds give
}

// Item summarizes the spans of one kind and name.
type Item struct {
	Kind     trace.Kind
	Name     string
	Count    int64
	Total    time.Duration
	Min, Max time.Duration
	Bytes    int64
}

// Mean returns the mean time of a span.
func (i Item) Mean() time.Duration { return i.Total / time.Duration(max(i.Count, 1)) }

// MarshalJSON implements [json.Marshaler].
func (i Item) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind    trace.Kind    `json:"kind"`
		Name    string        `json:"name"`
		Count   int64         `json:"count"`
		TotalNS time.Duration `json:"total_ns"`
		MinNS   time.Duration `json:"min_ns"`
		MeanNS  time.Duration `json:"mean_ns"`
		MaxNS   time.Duration `json:"max_ns"`
		Bytes   int64         `json:"bytes,omitempty"`
	}{i.Kind, i.Name, i.Count, i.Total, i.Min, i.Mean(), i.Max, i.Bytes})
}

// Counter is a hardware counter of a kernel, as a vendor's profiler measured it.
type Counter struct {
	Kernel string  `json:"kernel"`
	Name   string  `json:"name"`
	Unit   string  `json:"unit,omitempty"`
	Runs   int64   `json:"runs"`
	Mean   float64 `json:"mean"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// contains reports whether spans of a kind contain others and are not work themselves.
func contains(k trace.Kind) bool { return k == trace.Call || k == trace.Host }

// Items summarizes the spans and the statistics, the largest total first. It leaves out spans that contain others: calls, and the
// program's own spans.
func (p Part) Items() []Item {
	type key struct {
		kind trace.Kind
		name string
	}
	byKey := map[key]*Item{}
	var list []*Item
	if p.Timeline != nil {
		for _, s := range p.Timeline.Spans {
			if contains(s.Kind) {
				continue
			}
			at := byKey[key{s.Kind, s.Name}]
			if at == nil {
				at = &Item{Kind: s.Kind, Name: s.Name, Min: s.Length}
				byKey[key{s.Kind, s.Name}] = at
				list = append(list, at)
			}
			at.add(s)
		}
	}
	var items []Item
	for _, i := range list {
		if !p.hasStats(i.Kind) {
			items = append(items, *i)
		}
	}
	items = append(items, p.Stats...)
	slices.SortStableFunc(items, func(a, b Item) int { return cmp.Compare(b.Total, a.Total) })
	return items
}

func (p Part) hasStats(k trace.Kind) bool {
	return slices.ContainsFunc(p.Stats, func(i Item) bool { return i.Kind == k })
}

func (i *Item) add(s trace.Span) {
	i.Count++
	i.Total += s.Length
	i.Min, i.Max = min(i.Min, s.Length), max(i.Max, s.Length)
	i.Bytes += s.Bytes
}

// Summary is the profile in figures, for JSON.
type Summary struct {
	Title    string        `json:"title"`
	Device   string        `json:"device,omitempty"`
	Origin   string        `json:"origin"`
	Parts    []PartSummary `json:"parts"`
	Counters []Counter     `json:"counters,omitempty"`
}

// PartSummary is a part in figures.
type PartSummary struct {
	Title    string        `json:"title"`
	TotalNS  time.Duration `json:"total_ns"`
	Dropped  int64         `json:"dropped,omitempty"`
	Shares   []Share       `json:"shares"`
	Busy     []Busy        `json:"busy,omitempty"`
	Overlap  time.Duration `json:"overlap_ns,omitempty"`
	Items    []Item        `json:"items"`
	Findings []Finding     `json:"findings"`
}

// Summary returns the figures of the profile.
func (p Profile) Summary() Summary {
	s := Summary{Title: p.Title, Device: p.Device, Origin: p.Origin, Parts: []PartSummary{}, Counters: p.Counter}
	for _, part := range p.Parts {
		shares := part.Shares()
		sum := PartSummary{Title: part.Title, TotalNS: shares.Total, Shares: shares.List, Busy: shares.Busy, Overlap: shares.Overlap,
			Items: part.Items(), Findings: part.Findings()}
		if part.Timeline != nil {
			sum.Dropped = part.Timeline.Dropped
		}
		sum.Items, sum.Findings = append([]Item{}, sum.Items...), append([]Finding{}, sum.Findings...)
		s.Parts = append(s.Parts, sum)
	}
	return s
}
