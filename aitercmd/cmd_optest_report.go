package aitercmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/perf"
	"github.com/aiter-go/aiter/internal/report"
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

	decl            optests.Declaration
	where           string
	accurate, timed bool
}

// testCase is one case of a test.
type testCase struct {
	caseName
	values report.Values // sizes and options
	caseOutcome

	op     optests.Declaration
	params optests.Case
	err    error
}

// caseName and caseOutcome are the parts of a case in JSON before and after its values.
type caseName struct {
	Config string `json:"config"`
	DType  string `json:"dtype"`
}

type caseOutcome struct {
	Status      string           `json:"status"`
	Outputs     []optests.Result `json:"outputs"`
	Performance *timing          `json:"performance"`
	Error       *string          `json:"error"`
}

// MarshalJSON writes the sizes and options as keys of the case.
func (t testCase) MarshalJSON() ([]byte, error) {
	return report.JoinObjects(t.caseName, t.values, t.caseOutcome)
}

func (b *opSession) newTestReport(f *testFlags) *testReport {
	r := &testReport{
		Op: b.op.Name(), Target: b.targetName(), Device: b.info.Name, Cases: []testCase{},
		decl: b.decl, where: b.device.String(), accurate: f.accuracy, timed: f.performance,
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

func newTestCase(op optests.Declaration, c optests.Config) testCase {
	return testCase{
		caseName: caseName{Config: c.Name, DType: c.Case.DType.String()}, values: caseValues(op, c.Case, false),
		caseOutcome: caseOutcome{Status: casePassed, Outputs: []optests.Result{}}, op: op, params: c.Case,
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

func (t *testCase) setTiming(m perf.Measurement, err error) {
	if err != nil {
		t.fail(err)
		return
	}
	t.Performance = newTiming(m)
}

func (t *testCase) fail(err error) {
	text := err.Error()
	t.Status, t.Error, t.err = caseError, &text, err
}

// name returns the first columns of a table: sizes and numbers, type, options.
func (t *testCase) name(numbers, options []paramFlag) []string {
	cells := []string{t.Config}
	for _, p := range numbers {
		cells = append(cells, cellText(p.Cell(t.params)))
	}
	cells = append(cells, t.DType)
	for _, p := range options {
		cells = append(cells, cellText(p.Cell(t.params)))
	}
	return cells
}

// columns returns the sizes and numbers, and the options, that some case has.
func (r *testReport) columns() (numbers, options []paramFlag) {
	absent := func(p paramFlag) bool {
		return !slices.ContainsFunc(r.Cases, func(t testCase) bool { return p.Cell(t.params) != nil })
	}
	return slices.DeleteFunc(numberParams(r.decl), absent), slices.DeleteFunc(optionParams(r.decl), absent)
}

func heading(numbers, options []paramFlag) []string {
	return slices.Concat([]string{"CONFIG"}, headings(numbers), []string{"DTYPE"}, headings(options))
}

// kind returns the case's type and choices, for messages.
func (t *testCase) kind() string {
	words := []string{t.DType}
	for _, p := range ofKind(paramsOf(t.op), optests.Choice) {
		words = append(words, cellText(p.Cell(t.params)))
	}
	return strings.Join(words, " ")
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
		fmt.Fprintf(a.out, "\nPerformance; a large copy on the device runs at %.1f GB/s, read and write\n", *r.CopyGBps)
		if err := a.table(r.timingRows()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.out, "\n%d of %d cases passed\n", r.Passed, len(r.Cases))
	return err
}

func (r *testReport) accuracyRows() [][]string {
	numbers, options := r.columns()
	rows := [][]string{append(heading(numbers, options), "OUTPUT", "MAX ABS ERR", "MAX REL ERR", "ERRORS", "STATUS")}
	for _, t := range r.Cases {
		for _, o := range t.Outputs {
			status := casePassed
			if !o.OK() {
				status = caseFailed
			}
			rows = append(rows, append(t.name(numbers, options), o.Name, fmt.Sprintf("%.3g", o.MaxAbsErr), fmt.Sprintf("%.3g", o.MaxRelErr),
				fmt.Sprintf("%d/%d", o.Mismatches, o.Elements), status))
		}
		if len(t.Outputs) == 0 {
			rows = append(rows, append(t.name(numbers, options), "-", "-", "-", "-", t.Status))
		}
	}
	return rows
}

// printFailures prints the errors and the wrong outputs.
func (a *app) printFailures(r *testReport) {
	for _, t := range r.Cases {
		if t.err != nil {
			fmt.Fprintf(a.out, "%s, %s: %v\n", t.Config, t.kind(), t.err)
		}
		for _, o := range t.Outputs {
			if !o.OK() {
				fmt.Fprintf(a.out, "%s, %s: %s\n", t.Config, t.kind(), o)
			}
		}
	}
}

func (r *testReport) timingRows() [][]string {
	numbers, options := r.columns()
	rows := [][]string{append(heading(numbers, options), "MEAN us", "MIN us", "MEDIAN us", "GB/s", "% OF COPY")}
	for _, t := range r.Cases {
		cells := []string{"-", "-", "-", "-", "-"}
		if p := t.Performance; p != nil {
			cells = []string{
				fmt.Sprintf("%.1f", p.Mean), fmt.Sprintf("%.1f", p.Min), fmt.Sprintf("%.1f", p.Median),
				fmt.Sprintf("%.1f", p.GBps), fmt.Sprintf("%.1f", 100*p.CopyFraction),
			}
		}
		rows = append(rows, append(t.name(numbers, options), cells...))
	}
	return rows
}
