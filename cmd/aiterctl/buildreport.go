package main

import (
	"fmt"
	"slices"

	"github.com/aiter-go/aiter/jit"
)

// buildReport is what build --json prints. The names stay.
type buildReport struct {
	Modules []moduleReport `json:"modules"`
	Output  string         `json:"output"`  // folder of the cache that was made, "" for none
	Support *moduleReport  `json:"support"` // null when it was asked for by name, or there is none
}

type moduleReport struct {
	Module   string           `json:"module"`
	Target   string           `json:"target"`
	Spec     string           `json:"spec"`     // the part of the module that was asked for, "" for the whole
	Whole    bool             `json:"whole"`    // the artifact is the whole module
	Artifact string           `json:"artifact"` // path of the library, "" when the build failed
	Digest   string           `json:"digest"`
	Seconds  float64          `json:"seconds"`
	Units    []jit.UnitResult `json:"units"`
	Error    *string          `json:"error"`

	linked bool
}

func (b *buildPlan) report(results []jit.Result) buildReport {
	rep := buildReport{Modules: []moduleReport{}, Output: b.output}
	for _, r := range results {
		m := newModuleReport(r)
		if slices.Contains(b.asked, r.Request) {
			rep.Modules = append(rep.Modules, m)
		} else {
			rep.Support = &m
		}
	}
	return rep
}

func newModuleReport(r jit.Result) moduleReport {
	m := moduleReport{Module: r.Module, Target: r.Target.String(), Spec: r.Part.String(), Seconds: r.Seconds, Units: []jit.UnitResult{}, linked: r.Status == jit.Compiled}
	for _, u := range r.Units {
		if u.Status != "" { // else a failure elsewhere came before its turn
			m.Units = append(m.Units, u)
		}
	}
	if r.Err != nil {
		text := r.Err.Error()
		m.Error = &text
		return m
	}
	m.Artifact, m.Digest, m.Whole = r.Artifact.Path, r.Artifact.Digest, r.Artifact.Part == ""
	return m
}

// rows is the report as a table.
func (rep buildReport) rows() [][]string {
	rows := [][]string{{"MODULE", "TARGET", "RESULT", "SECONDS", "ARTIFACT"}}
	all := rep.Modules
	if rep.Support != nil {
		all = append(slices.Clone(all), *rep.Support)
	}
	for _, m := range all {
		rows = append(rows, []string{partName(m.Module, m.Spec), m.Target, m.result(), fmt.Sprintf("%.2f", m.Seconds), firstOf(m.Artifact, "-")})
	}
	return rows
}

// result is "hit", "hit: the whole module", "linked", "compiled 1 of 2" or "failed".
func (m moduleReport) result() string {
	compiled := 0
	for _, u := range m.Units {
		if u.Status == jit.Compiled {
			compiled++
		}
	}
	switch {
	case m.Error != nil:
		return "failed"
	case compiled == 0 && m.linked:
		return "linked"
	case compiled == 0 && m.Whole && m.Spec != "":
		return "hit: the whole module"
	case compiled == 0:
		return "hit"
	}
	return fmt.Sprintf("compiled %d of %d", compiled, len(m.Units))
}
