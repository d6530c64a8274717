package main

import (
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/internal/perf"
	optests "github.com/aiter-go/aiter/op_tests"
)

// The statuses of a case. They are part of the interface.
const (
	casePassed = "PASSED"
	caseFailed = "FAILED" // an output is wrong
	caseError  = "ERROR"  // the operator could not be called or timed
)

// testReport is the output of test --json. The names are part of the interface.
type testReport struct {
	Op       string     `json:"op"`
	Target   string     `json:"target"`
	Device   string     `json:"device"`
	CopyGBps *float64   `json:"copy_gbps"` // null without --performance
	Passed   int        `json:"passed"`
	Failed   int        `json:"failed"`
	Cases    []testCase `json:"cases"`

	where           string
	accurate, timed bool
}

// testCase is one case of a test.
type testCase struct {
	Config      string           `json:"config"`
	DType       string           `json:"dtype"`
	Layout      string           `json:"layout"`
	Batch       int64            `json:"batch"`
	Dim         int64            `json:"dim"`
	Seqlen      int64            `json:"seqlen"`
	Width       int64            `json:"width"`
	SiLU        bool             `json:"silu"`
	Bias        bool             `json:"bias"`
	Status      string           `json:"status"`
	Outputs     []optests.Result `json:"outputs"`
	Performance *timing          `json:"performance"`
	Error       *string          `json:"error"`

	err error
}

func (b *opSession) newTestReport(f *testFlags) *testReport {
	r := &testReport{
		Op: b.op.Name(), Target: b.targetName(), Device: b.info.Name, Cases: []testCase{},
		where: b.device.String(), accurate: f.accuracy, timed: f.performance,
	}
	if f.performance {
		r.CopyGBps = &b.copyGBps
	}
	return r
}

func (r *testReport) add(t testCase) {
	r.Cases = append(r.Cases, t)
	if t.Status == casePassed {
		r.Passed++
	} else {
		r.Failed++
	}
}

func newTestCase(c optests.Config) testCase {
	return testCase{
		Config: c.Name, DType: c.Case.DType.String(), Layout: c.Case.Layout.String(),
		Batch: c.Case.Batch, Dim: c.Case.Dim, Seqlen: c.Case.Seqlen, Width: c.Case.Width,
		SiLU: c.Case.SiLU, Bias: !c.Case.NoBias, Status: casePassed, Outputs: []optests.Result{},
	}
}

// setAccuracy sets the result of the comparison with the reference.
func (t *testCase) setAccuracy(results []optests.Result, err error) {
	if err != nil {
		t.fail(err)
		return
	}
	t.Outputs = nonNil(results)
	if !optests.Passed(results) {
		t.Status = caseFailed
	}
}

func (t *testCase) setTiming(m perf.Measurement, fraction float64, err error) {
	if err != nil {
		t.fail(err)
		return
	}
	t.Performance = newTiming(m, fraction)
}

func (t *testCase) fail(err error) {
	text := err.Error()
	t.Status, t.Error, t.err = caseError, &text, err
}

// name returns the first columns of a table.
func (t *testCase) name() []string {
	return []string{
		t.Config, fmt.Sprint(t.Batch), fmt.Sprint(t.Dim), fmt.Sprint(t.Seqlen), fmt.Sprint(t.Width),
		t.DType, t.Layout, yesNo(t.SiLU), yesNo(t.Bias),
	}
}

func caseHeading() []string {
	return []string{"CONFIG", "BATCH", "DIM", "SEQLEN", "WIDTH", "DTYPE", "LAYOUT", "SILU", "BIAS"}
}

// printTest prints the report and returns the error of the command.
func (a *app) printTest(r *testReport) error {
	var err error
	if r.Failed > 0 {
		err = &verifyError{fmt.Sprintf("%s on %s: %d of %d cases failed", r.Op, r.where, r.Failed, len(r.Cases))}
	}
	if a.json {
		return errors.Join(a.writeJSON(r), err)
	}
	return errors.Join(a.printTestTables(r), err)
}

func (a *app) printTestTables(r *testReport) error {
	fmt.Fprintf(a.out, "%s on %s (%s) for %s\n", r.Op, r.where, r.Device, r.Target)
	if r.accurate {
		fmt.Fprintln(a.out, "\nAccuracy, against a float64 reference")
		if err := a.table(r.accuracyRows()); err != nil {
			return err
		}
	}
	a.printFailures(r)
	if r.timed {
		fmt.Fprintf(a.out, "\nPerformance; a copy on the device runs at %.1f GB/s, read and write\n", *r.CopyGBps)
		if err := a.table(r.timingRows()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.out, "\n%d of %d cases passed\n", r.Passed, len(r.Cases))
	return err
}

func (r *testReport) accuracyRows() [][]string {
	rows := [][]string{append(caseHeading(), "OUTPUT", "MAX ABS ERR", "MAX REL ERR", "ERRORS", "STATUS")}
	for _, t := range r.Cases {
		for _, o := range t.Outputs {
			status := casePassed
			if !o.OK() {
				status = caseFailed
			}
			rows = append(rows, append(t.name(), o.Name, fmt.Sprintf("%.3g", o.MaxAbsErr), fmt.Sprintf("%.3g", o.MaxRelErr),
				fmt.Sprintf("%d/%d", o.Mismatches, o.Elements), status))
		}
		if len(t.Outputs) == 0 {
			rows = append(rows, append(t.name(), "-", "-", "-", "-", t.Status))
		}
	}
	return rows
}

// printFailures prints the errors and the wrong outputs.
func (a *app) printFailures(r *testReport) {
	for _, t := range r.Cases {
		if t.err != nil {
			fmt.Fprintf(a.out, "%s, %s %s: %v\n", t.Config, t.DType, t.Layout, t.err)
		}
		for _, o := range t.Outputs {
			if !o.OK() {
				fmt.Fprintf(a.out, "%s, %s %s: %s\n", t.Config, t.DType, t.Layout, o)
			}
		}
	}
}

func (r *testReport) timingRows() [][]string {
	rows := [][]string{append(caseHeading(), "MEAN us", "MIN us", "MEDIAN us", "GB/s", "% OF COPY")}
	for _, t := range r.Cases {
		cells := []string{"-", "-", "-", "-", "-"}
		if p := t.Performance; p != nil {
			cells = []string{
				fmt.Sprintf("%.1f", p.Mean), fmt.Sprintf("%.1f", p.Min), fmt.Sprintf("%.1f", p.Median),
				fmt.Sprintf("%.1f", p.GBps), fmt.Sprintf("%.1f", 100*p.CopyFraction),
			}
		}
		rows = append(rows, append(t.name(), cells...))
	}
	return rows
}
