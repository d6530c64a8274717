package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/report"
	"github.com/aiter-go/aiter/internal/spelling"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

const benchLong = `Measure an operator over sizes, types and layouts, with the method of aiterctl test
--performance. The sizes are all combinations of the given ones; without any, a
sweep from tiny tensors to the layers of models, on the CPU up to 16 Mi elements.

The result is a table, JSON (--json) or CSV (--csv). --html writes a page with charts
of bandwidth and latency over size; the bandwidth of a copy is drawn as the limit. If one
size or option has several values and all others have one, the charts show the time and
the fraction of a copy over that size or option. They also show the roofs: the least time
that the device's memory, vector units (float32) and matrix units (16 bits) need for the
bytes and the arithmetic of a call. --chart writes these two charts as one SVG file. The
peak of arithmetic is the number of the GPU's units times its boost clock times the rate of
its architecture; for a CPU it is unknown.

--case measures named cases. An operator that the program declares has only named cases.
--compare adds the measurements of an earlier --json file; --from takes measurements
from such a file instead of the device.

--host measures calls that begin and end in host memory: pipelined calls with pinned and
with other memory. It compares them with calls whose steps run one after the other
(allocate, upload, call, wait, download, free), and with copies of as many bytes of pinned
memory in one direction and in both at once.`

const benchExample = `  aiterctl bench causal_conv1d_fwd --json > before.json
  aiterctl bench causal_conv1d_fwd --compare before.json --html report.html
  aiterctl bench causal_conv1d_bwd --batch 8 --dim 2048 --seqlen 512,1024,2048,4096 --dtype bfloat16 --use_silu --csv
  aiterctl bench causal_conv1d_fwd --batch 2 --dim 4096 --seqlen 4096 --width 4,8,16,32,64,128 --chart width.svg
  aiterctl bench causal_conv1d_fwd --batch 16 --dim 2048 --seqlen 4096 --dtype bfloat16 --host
  aiterctl bench causal_conv1d_fwd --from h200.json --html h200.html`

const benchListedExample = `  aiterctl bench OP --json > before.json
  aiterctl bench OP --compare before.json --html report.html
  aiterctl bench OP --dtype float16 --csv`

type benchFlags struct {
	measureFlags
	csv, host     bool
	html, chart   string
	compare, from string
}

func newBench(a *app) *cobra.Command {
	f := new(benchFlags)
	cmd := &cobra.Command{
		Use:               "bench " + a.opUse(),
		Short:             "Measure an operator over sizes, types and layouts",
		Long:              benchLong + a.opParamsLong("bench"),
		Example:           a.examples(benchExample, benchListedExample),
		Args:              a.opArgs(),
		ValidArgsFunction: a.opNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.csv && a.json {
				return usagef("--csv and --json exclude each other")
			}
			if err := errors.Join(f.timingFlags.check(), f.checkNames(), f.checkHost()); err != nil {
				return err
			}
			if f.host {
				return a.benchHost(cmd.Context(), f, a.opArg(args))
			}
			return a.benchOp(cmd.Context(), f, a.opArg(args))
		},
	}
	fl := cmd.Flags()
	f.measureFlags.add(a, fl)
	fl.BoolVar(&f.csv, "csv", false, "print CSV to stdout")
	fl.BoolVar(&f.host, "host", false, "tensors in host memory: pipelined calls, the same steps one after the other, and copies")
	fl.StringVar(&f.html, "html", "", "write a page with charts to a `FILE`")
	fl.StringVar(&f.chart, "chart", "", "write the charts of a sweep of one size or option to an SVG `FILE`")
	fl.StringVar(&f.compare, "compare", "", "compare with the measurements in an earlier `FILE.json`")
	fl.StringVar(&f.from, "from", "", "take the measurements from `FILE.json`, written by --json")
	a.completeCases(cmd)
	a.acceptUnknownFlags(cmd)
	return cmd
}

// benchOp reads the earlier file first, so that a wrong name fails before a long
// measurement.
func (a *app) benchOp(ctx context.Context, f *benchFlags, name string) error {
	before, err := readMeasurements(f.compare, name)
	if err != nil {
		return err
	}
	now, err := readMeasurements(f.from, name)
	if err != nil {
		return err
	}
	op, err := a.declaration(name)
	if f.from != "" && as[*optests.UnknownOpError](err) {
		err = nil // the report can be made from the file; only the roles of the columns are missing
	}
	if err != nil {
		return err
	}
	if f.from == "" {
		now, err = a.measure(ctx, f, op, before)
	}
	if err != nil {
		return err
	}
	if err := f.checkCompare(now, before); err != nil {
		return err
	}
	page := report.Page{Title: name + " on " + now.Device, Now: now, Before: before, Columns: reportColumns(op)}
	if f.html != "" {
		if err := writeFile(f.html, func(out *os.File) error { return report.WriteHTML(out, page) }); err != nil {
			return err
		}
	}
	if f.chart != "" {
		if err := page.CheckSweep(); err != nil { // of measurements from a file
			return usagef("--chart: %v", err)
		}
		if err := writeFile(f.chart, func(out *os.File) error { return report.WriteSVG(out, page) }); err != nil {
			return err
		}
	}
	return a.printBench(f, now, before)
}

// checkCompare refuses a file of --compare that has none of the cases.
func (f *benchFlags) checkCompare(now, before *report.File) error {
	if before == nil || len(report.Changes(now, before)) > 0 {
		return nil
	}
	return usagef("--compare %s: the file has none of these cases; give sizes and types of a case that it has, such as %s", f.compare,
		caseText(before.Rows[0]))
}

// caseText returns a measured case: "dtype float32, batch 2, dim 64".
func caseText(r report.Row) string {
	words := []string{"dtype " + r.DType}
	for _, v := range r.Values {
		words = append(words, fmt.Sprintf("%s %v", v.Name, v.Value))
	}
	return strings.Join(words, ", ")
}

// plannedFile returns a file of cases without measurements.
func plannedFile(op optests.Declaration, cases []optests.Config) *report.File {
	f := &report.File{}
	for _, c := range cases {
		f.Rows = append(f.Rows, report.Row{Op: op.Name(), DType: c.Case.DType.String(), Values: caseValues(op, c.Case, true)})
	}
	return f
}

// checkChart verifies that the cases are a sweep that --chart can draw, before a long measurement.
func (f *benchFlags) checkChart(op optests.Declaration, cases []optests.Config) error {
	if f.chart == "" {
		return nil
	}
	page := report.Page{Now: plannedFile(op, cases), Columns: reportColumns(op)}
	if err := page.CheckSweep(); err != nil {
		return usagef("--chart: %v", err)
	}
	return nil
}

// readMeasurements reads the measurements of an operator from a file; nil for no file.
func readMeasurements(name, op string) (*report.File, error) {
	if name == "" {
		return nil, nil
	}
	in, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read measurements: %w", err)
	}
	defer in.Close()
	f, err := report.Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if f = f.Of(op); len(f.Rows) == 0 {
		return nil, usagef("%s holds no measurements of %s", name, op)
	}
	return f, nil
}

// sweepLimit is the largest number of elements of a case in the sweep on the CPU.
const sweepLimit = 16 << 20

func (f *benchFlags) cases(op optests.Declaration, dev tensor.Device) (list []optests.Config, err error) {
	switch {
	case f.hasSizes():
		list, err = f.sizeCases(op.Default())
	case len(f.names) > 0:
		list, err = pickCases(op.Configs(), f.names)
	default:
		for _, c := range op.Sweep() {
			list = append(list, optests.Config{Name: "-", Case: c})
		}
		list = withoutLarger(op, sweepLimit, dev, list)
	}
	if err != nil {
		return nil, err
	}
	return f.expand(op, list, optests.ForTiming)
}

// measure times every case on the device. before is the file of --compare, or nil.
func (a *app) measure(ctx context.Context, f *benchFlags, op optests.Declaration, before *report.File) (file *report.File, err error) {
	planned, err := f.cases(op, tensor.Host())
	if err == nil {
		err = errors.Join(f.checkChart(op, planned), f.checkCompare(plannedFile(op, planned), before))
	}
	if err != nil {
		return nil, err // before anything is compiled
	}
	b, err := a.openSession(ctx, f.deviceFlags, op, planned)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	cases, err := f.cases(op, b.device)
	if err != nil {
		return nil, err
	}
	if err := b.startTiming(ctx, f.timingFlags); err != nil {
		return nil, err
	}
	file = &report.File{
		Origin: b.origin(), Device: b.info.Name, CopyGBps: b.copyGBps, VectorGFlops: b.peaks().Vector, MatrixGFlops: b.peaks().Matrix,
		Rows: []report.Row{},
	}
	for i, c := range cases {
		a.err.SetStatus(fmt.Sprintf("[%d/%d] %s %s", i+1, len(cases), op.Name(), c.Case))
		row, err := b.row(ctx, c.Case)
		if err != nil {
			return nil, err
		}
		file.Rows = append(file.Rows, row)
	}
	return file, nil
}

func (b *opSession) row(ctx context.Context, c optests.Case) (report.Row, error) {
	m, err := b.measure(ctx, c)
	return report.Row{
		Op: b.op.Name(), Target: b.targetName(), DType: c.DType.String(), Values: caseValues(b.decl, c, true),
		MedianUS: m.Median, P20US: m.P20, P80US: m.P80, GBps: m.GBps(), CopyFraction: m.CopyFraction(),
		GFlops: m.GFlops(), VectorFraction: m.VectorFraction(b.peaks()), MatrixFraction: m.MatrixFraction(b.peaks(), c),
	}, err
}

func (a *app) printBench(f *benchFlags, now, before *report.File) error {
	switch {
	case a.json:
		return a.writeJSON(now)
	case f.csv:
		return now.WriteCSV(a.out)
	}
	fmt.Fprintf(a.out, "%s; a large copy on the device runs at %.1f GB/s, read and write\n", now.Device, now.CopyGBps)
	if line := peakLine(now); line != "" {
		fmt.Fprintln(a.out, line)
	}
	changes := report.Changes(now, before)
	if err := a.table(benchRows(now, before != nil, changes)); err != nil {
		return err
	}
	if before == nil {
		return nil
	}
	for _, d := range report.Differences(now, before) {
		fmt.Fprintf(a.err, "warning: the two files were measured differently: %s\n", d)
	}
	_, err := fmt.Fprintf(a.out, "\nspeed-up over %s: %.2fx, geometric mean of %s\n", f.compare, report.GeoMean(changes),
		spelling.Count(len(changes), "case"))
	return err
}

// peakLine returns the peaks of arithmetic, or a note that they are unknown; "" for an operator without a count of its arithmetic.
func peakLine(f *report.File) string {
	switch {
	case !f.HasArithmetic():
		return ""
	case f.VectorGFlops <= 0 || f.MatrixGFlops <= 0:
		return "the device's peaks of arithmetic are unknown: no roofs of vector and matrix units"
	}
	return fmt.Sprintf("peaks of arithmetic: %.1f Tflop/s in vector units (float32), %.1f in matrix units (16 bits)", f.VectorGFlops/1e3,
		f.MatrixGFlops/1e3)
}

// roofColumns returns the fractions of the peaks of arithmetic that some row has.
func roofColumns(f *report.File) (names []string, of []func(report.Row) float64) {
	for _, c := range []struct {
		name string
		of   func(report.Row) float64
	}{
		{"% OF VECTOR", func(r report.Row) float64 { return r.VectorFraction }},
		{"% OF MATRIX", func(r report.Row) float64 { return r.MatrixFraction }},
	} {
		if slices.ContainsFunc(f.Rows, func(r report.Row) bool { return c.of(r) > 0 }) {
			names, of = append(names, c.name), append(of, c.of)
		}
	}
	return names, of
}

func benchRows(f *report.File, compared bool, changes []report.Change) [][]string {
	names := f.Names()
	heading := []string{"TARGET", "DTYPE"}
	for _, name := range names {
		heading = append(heading, strings.ToUpper(name))
	}
	heading = append(heading, "MEDIAN us", "P20 us", "P80 us", "GB/s", "% OF COPY")
	roofNames, roofs := roofColumns(f)
	heading = append(heading, roofNames...)
	if compared {
		heading = append(heading, "SPEED-UP")
	}
	rows := [][]string{heading}
	for i, r := range f.Rows {
		row := []string{r.Target, r.DType}
		for _, name := range names {
			row = append(row, cellText(r.Values.Of(name)))
		}
		row = append(row, fmt.Sprintf("%.1f", r.MedianUS), fmt.Sprintf("%.1f", r.P20US), fmt.Sprintf("%.1f", r.P80US),
			fmt.Sprintf("%.1f", r.GBps), fmt.Sprintf("%.1f", 100*r.CopyFraction))
		for _, of := range roofs {
			row = append(row, percentOrDash(of(r)))
		}
		if compared {
			row = append(row, speedup(i, changes))
		}
		rows = append(rows, row)
	}
	return rows
}

// percentOrDash returns a fraction of a roof, "-" for a row without that roof.
func percentOrDash(v float64) string {
	if v <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*v)
}

// speedup returns the change of row i, "-" if the earlier file has no such row.
func speedup(i int, changes []report.Change) string {
	for _, c := range changes {
		if c.Row == i {
			return fmt.Sprintf("%.2fx", c.Speedup)
		}
	}
	return "-"
}
