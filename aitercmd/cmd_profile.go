package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/profile"
	"github.com/aiter-go/aiter/internal/report"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

const profileLong = `Show where the time of calls goes: build, load, allocations, uploads, launches, kernels,
downloads, waits and gaps. The first call and later calls are shown separately.

The tensors stay on the device between the calls. With --host each call begins and ends
in host memory: pipelined, with pinned and with other memory, and one step after the
other (allocate, upload, call, wait, download, free). On the CPU there are no pipelined
calls. Devices measure kernels and queued copies with events; the host measures the rest.

--html writes a page with a timeline. --trace writes a file for Perfetto (ui.perfetto.dev)
and chrome://tracing. --json prints all figures.

--counters runs the command again under the profiler of the GPU's vendor, rocprofv3 or
ncu, and adds its counters. ROCPROFV3 or NCU names the profiler; else the command looks in
PATH, and in the folders of ROCm or of CUDA and Nsight Compute.

--import does not measure: it reads CSV files of rocprofv3 (traces of kernels, API calls,
memory copies and allocations, statistics, counters, agents) and of ncu (--csv).`

const profileExample = `  aiterctl profile causal_conv1d_fwd --dtype bfloat16 --html profile.html --trace profile.json
  aiterctl profile causal_conv1d_fwd --batch 16 --dim 2048 --seqlen 4096 --host
  aiterctl profile causal_conv1d_fwd --device cuda:0 --counters
  aiterctl profile --import out/*_kernel_trace.csv --import out/*_hip_api_trace.csv --html profile.html`

const profileListedExample = `  aiterctl profile OP --html profile.html --trace profile.json
  aiterctl profile OP --host
  aiterctl profile --import kernel_stats.csv --html profile.html`

type profileFlags struct {
	caseFlags
	deviceFlags
	calls          int
	host, counters bool
	pmc            []string
	html, trace    string
	imports        []string
}

// maxProfileCases limits the size of the page.
const maxProfileCases = 8

func newProfile(a *app) *cobra.Command {
	f := new(profileFlags)
	cmd := &cobra.Command{
		Use:               "profile " + a.opUse() + " | --import FILE...",
		Short:             "Show where the time of calls goes",
		Long:              profileLong + a.opParamsLong("profile"),
		Example:           a.examples(profileExample, profileListedExample),
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.opNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(f.imports) > 0 {
				return a.importProfile(f, args)
			}
			if err := a.opArgs()(cmd, args); err != nil {
				return err
			}
			if f.calls < 1 {
				return usagef("--calls %d: expected 1 or more", f.calls)
			}
			if err := f.checkNames(); err != nil {
				return err
			}
			return a.profileOp(cmd.Context(), f, a.opArg(args))
		},
	}
	fl := cmd.Flags()
	f.caseFlags.add(a, fl)
	f.deviceFlags.add(fl)
	fl.IntVar(&f.calls, "calls", 20, "number of calls after the first one")
	fl.BoolVar(&f.host, "host", false, "tensors in host memory: pipelined calls, and the same steps one after the other")
	fl.BoolVar(&f.counters, "counters", false, "run the vendor's profiler (rocprofv3 or ncu) too, and add its counters")
	fl.StringSliceVar(&f.pmc, "pmc", nil, "counters of rocprofv3, or metrics of ncu, for --counters: a comma-separated `LIST`")
	fl.StringVar(&f.html, "html", "", "write a page with the timeline to a `FILE`")
	fl.StringVar(&f.trace, "trace", "", "write the timeline to a `FILE` for Perfetto")
	fl.StringArrayVar(&f.imports, "import", nil, "show a CSV `FILE` of rocprofv3 or ncu; may be repeated, and other files may follow")
	a.completeCases(cmd)
	a.acceptUnknownFlags(cmd)
	return cmd
}

// importProfile shows files of a profiler. The arguments are files too: the shell replaces a pattern after --import by
// several words.
func (a *app) importProfile(f *profileFlags, more []string) error {
	if f.counters || f.host {
		return usagef("--import contradicts --host and --counters: it shows what was measured before")
	}
	p, err := profile.Import(append(f.imports, more...)...)
	if err != nil {
		return err
	}
	p.Title = "Imported profile"
	return a.showProfile(f, p, nil)
}

// cases lists the cases of the command line, by default the usual one.
func (f *profileFlags) cases(op optests.Declaration) (list []optests.Config, err error) {
	switch {
	case f.hasSizes():
		list, err = f.sizeCases(op.Default())
	case len(f.names) > 0:
		list, err = pickCases(op.Configs(), f.names)
	case op.Listed():
		list = op.Configs()[:1]
	default:
		list = []optests.Config{{Name: "-", Case: op.Default()}}
	}
	if err != nil {
		return nil, err
	}
	list, err = f.expand(op, list, optests.ForTiming)
	if err != nil {
		return nil, err
	}
	if len(f.dtype) == 0 { // one type is enough for a profile
		list = withDType(list, list[0].Case.DType)
	}
	if len(list) > maxProfileCases {
		return nil, usagef("%d cases; a profile shows at most %d: give fewer sizes, types or --case", len(list), maxProfileCases)
	}
	return list, nil
}

// withDType returns the cases of an element type.
func withDType(list []optests.Config, dt tensor.DType) []optests.Config {
	var some []optests.Config
	for _, c := range list {
		if c.Case.DType == dt {
			some = append(some, c)
		}
	}
	return some
}

// profileOp records calls of an operator.
func (a *app) profileOp(ctx context.Context, f *profileFlags, name string) (err error) {
	op, err := a.declaration(name)
	if err != nil {
		return err
	}
	cases, err := f.cases(op)
	if err != nil {
		return err
	}
	traced := *a
	traced.trace = trace.New(trace.Options{})
	b, err := traced.openSession(ctx, f.deviceFlags, op, cases)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	tool, err := f.profiler(a, b.device)
	if err != nil {
		return err
	}
	periods := []period{{title: "First call", end: traced.trace.Now()}}
	for i, c := range cases {
		a.err.SetStatus(fmt.Sprintf("[%d/%d] %s %s", i+1, len(cases), op.Name(), c.Case))
		more, err := b.record(ctx, f, c.Case)
		if err != nil {
			return err
		}
		periods = append(periods, more...)
	}
	line := traced.trace.Timeline()
	result := profile.Profile{
		Title: op.Name() + " on " + b.device.String(), Device: b.info.Name, Origin: f.origin(b.targetName()),
	}
	for _, p := range periods {
		result.Parts = append(result.Parts, profile.Part{Title: p.title, Timeline: line.Between(p.start, p.end)})
	}
	if tool != nil {
		if result.Counter, err = a.countersOf(ctx, tool, f); err != nil {
			return err
		}
	}
	return a.showProfile(f, result, line)
}

// origin describes the measurement.
func (f *profileFlags) origin(target string) string {
	where := "tensors on the device"
	if f.host {
		where = "tensors in host memory"
	}
	return fmt.Sprintf("built for %s; %d calls, %s", target, f.calls, where)
}

// period is a part of the timeline.
type period struct {
	title      string
	start, end time.Duration
}

// record records the calls of a case, after one call outside of the recorded period.
func (b *opSession) record(ctx context.Context, f *profileFlags, c optests.Case) (list []period, err error) {
	problem, err := b.decl.GenerateForTiming(c)
	if err != nil {
		return nil, err
	}
	if f.host {
		return b.recordHost(ctx, f, problem, c.String())
	}
	placed, err := b.runner(ctx).Upload(problem)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, placed.Free()) }()
	queue := device.Stream{Device: b.device}
	if err := errors.Join(b.op.Call(ctx, placed.Args...), b.driver.Synchronize(queue)); err != nil {
		return nil, err
	}
	p, rec := period{title: c.String()}, b.app.trace
	p.start = rec.Now()
	for range f.calls {
		if err := b.op.Call(ctx, placed.Args...); err != nil {
			return nil, err
		}
	}
	err = b.driver.Synchronize(queue)
	p.end = rec.Now()
	return []period{p}, err
}

// showProfile writes the files and prints the shares. line is the whole timeline, nil for imported files.
func (a *app) showProfile(f *profileFlags, p profile.Profile, line *trace.Timeline) error {
	if line == nil && len(p.Parts) > 0 {
		line = p.Parts[0].Timeline
	}
	if f.html != "" {
		if err := writeFile(f.html, func(out *os.File) error { return profile.WriteHTML(out, p) }); err != nil {
			return err
		}
	}
	if f.trace != "" {
		if line == nil {
			return usagef("--trace: the files have statistics and counters only, no times; import a trace")
		}
		if err := writeFile(f.trace, func(out *os.File) error { return line.WriteChrome(out) }); err != nil {
			return err
		}
	}
	if a.json {
		return a.writeJSON(p.Summary())
	}
	return a.printProfile(p)
}

func (a *app) printProfile(p profile.Profile) error {
	fmt.Fprintln(a.out, strings.Join(nonEmpty(p.Title, p.Device, p.Origin), "; "))
	for _, part := range p.Parts {
		shares := part.Shares()
		whole := "in all"
		if shares.Summed {
			whole = "the sum of all times"
		}
		fmt.Fprintf(a.out, "\n%s: %s %s\n", part.Title, report.Duration(shares.Total), whole)
		rows := [][]string{{"", "SHARE", "TIME", "COUNT"}}
		for _, g := range shares.Groups() {
			rows = append(rows, []string{string(g.Group), report.Percent(g.Fraction), report.Duration(g.Time), fmt.Sprint(g.Count)})
		}
		if err := a.table(rows); err != nil {
			return err
		}
		if err := a.printBusy(shares); err != nil {
			return err
		}
		for _, found := range part.Findings() {
			fmt.Fprintf(a.out, "- %s: %s. %s.\n", found.What, found.Figure, found.Advice)
		}
	}
	return a.printCounters(p.Counter)
}

// printBusy shows which kinds of work overlap.
func (a *app) printBusy(s profile.Shares) error {
	if len(s.Busy) == 0 {
		return nil
	}
	rows := [][]string{{"", "BUSY", "TIME"}}
	for _, b := range s.Busy {
		rows = append(rows, []string{string(b.Kind), report.Percent(b.Fraction), report.Duration(b.Time)})
	}
	overlap := float64(s.Overlap) / float64(max(s.Total, 1))
	rows = append(rows, []string{"two or more at once", report.Percent(overlap), report.Duration(s.Overlap)})
	fmt.Fprintln(a.out)
	return a.table(rows)
}

func (a *app) printCounters(list []profile.Counter) error {
	if len(list) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	rows := [][]string{{"COUNTER", "MEAN", "UNIT", "RUNS", "KERNEL"}}
	for _, c := range list {
		rows = append(rows, []string{c.Name, report.Number(c.Mean), c.Unit, fmt.Sprint(c.Runs), c.Kernel})
	}
	return a.table(rows)
}

// nonEmpty returns the words that are not empty.
func nonEmpty(words ...string) []string {
	var list []string
	for _, w := range words {
		if w != "" {
			list = append(list, w)
		}
	}
	return list
}
