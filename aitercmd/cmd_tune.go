package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/perf"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/internal/tuning"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

const tuneLong = `Find the launch parameters with which an operator is fastest on this device, and keep
them in the cache, for the operator's library. Calls use them with AITER_TUNE=1
(Options.Tune of package registry). The operator's configuration declares the
parameters and their values (tune.NAME of the operator).

The command measures each case of --shapes or of the flags, as test has them. It tries
all combinations of the values of those parameters that a call of the case reads. First
it compares the results of each combination with the float64 reference: a wrong one is
left out, and the command fails with exit code 6 at the end. Then it times all
combinations and the operator's own launch plan alternately, with flushed caches, and
leaves out those that are significantly slower. It measures the fastest combination and
the plan once more. If the combination is significantly faster, by 2% or more, the command
keeps it, else the plan.

A choice holds for one operator, device, driver, library and class of shapes. A class has
the types and layouts of the tensors, and their sizes up to the next power of two; each
size up to 16 is a class of its own. Of several cases of a class the last one decides.
explain shows what is kept, and build --output and cache export copy it.

Each line of --shapes FILE has sizes and options of cases, with several values after
commas: "batch=1,2 dim=4096 seqlen=2048 dtype=bfloat16". For an operator that the program
declares, each line has the name of a case. Text after # is a comment.`

const tuneExample = `  aiterctl tune causal_conv1d_fwd --batch 4 --dim 2048 --seqlen 1024,4096 --dtype bfloat16
  aiterctl tune causal_conv1d_bwd --shapes service.shapes --device cuda:0
  AITER_TUNE=1 aiterctl bench causal_conv1d_fwd --batch 4 --dim 2048`

const tuneListedExample = `  aiterctl tune OP
  aiterctl tune OP --shapes cases.txt
  AITER_TUNE=1 aiterctl bench OP`

type tuneFlags struct {
	testFlags
	shapes string
	dryRun bool
}

func newTune(a *app) *cobra.Command {
	f := new(tuneFlags)
	cmd := &cobra.Command{
		Use:               "tune " + a.opUse(),
		Short:             "Find the launch parameters that are fastest on this device",
		Long:              tuneLong + a.opParamsLong("tune"),
		Example:           a.examples(tuneExample, tuneListedExample),
		Args:              a.opArgs(),
		ValidArgsFunction: a.opNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.shapes != "" && (f.hasSizes() || len(f.names) > 0) {
				return usagef("--shapes contradicts sizes and --case; leave out one of them")
			}
			if err := f.checkNames(); err != nil {
				return err
			}
			return a.tuneOp(cmd.Context(), f, a.opArg(args))
		},
	}
	fl := cmd.Flags()
	f.caseFlags.add(a, fl)
	f.deviceFlags.add(fl)
	fl.StringVar(&f.shapes, "shapes", "", "take the cases from a `FILE`")
	fl.BoolVar(&f.dryRun, "dry-run", false, "measure, and keep nothing")
	f.accuracy, f.performance = true, true
	a.completeCases(cmd)
	a.acceptUnknownFlags(cmd)
	return cmd
}

// casesOf returns the function that lists the cases for a device.
func (f *tuneFlags) casesOf(op optests.Declaration) (func(tensor.Device) ([]optests.Config, error), error) {
	if f.shapes == "" {
		return func(dev tensor.Device) ([]optests.Config, error) { return f.cases(op, dev) }, nil
	}
	text, err := os.ReadFile(f.shapes)
	if err != nil {
		return nil, usagef("--shapes: %v", err)
	}
	list, err := parseShapes(f.shapes, string(text), op)
	if err != nil {
		return nil, err
	}
	memory := availableMemory()
	for _, c := range list {
		if err := memory.check(op, c.Case, optests.ForTiming); err != nil {
			return nil, err
		}
	}
	return func(tensor.Device) ([]optests.Config, error) { return list, nil }, nil
}

func (a *app) tuneOp(ctx context.Context, f *tuneFlags, name string) (err error) {
	op, err := a.declaration(name)
	if err != nil {
		return err
	}
	cases, err := f.casesOf(op)
	if err != nil {
		return err
	}
	planned, err := cases(tensor.Host())
	if err != nil {
		return err // before anything is compiled
	}
	b, err := a.untuned().openSession(ctx, f.deviceFlags, op, planned)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	declared, err := b.op.LaunchParams(b.device)
	if err != nil {
		return err
	}
	if len(declared) == 0 {
		return usagef("%s has no launch parameters on %s; tune.NAME in its configuration declares some", name, b.targetName())
	}
	list, err := cases(b.device)
	if err != nil {
		return err
	}
	b.meter, err = perf.Open(perf.Options{Driver: b.driver, Device: b.device, Transfer: optests.Transfer(b.reg.Devices(), b.device),
		Iterations: perf.DefaultIterations})
	if err != nil {
		return err
	}
	t := &tuner{opSession: b, declared: declared, dryRun: f.dryRun}
	rep := &tuneReport{Op: name, Target: b.targetName(), Device: b.info.Name, where: b.device.String(), Cases: []tunedCase{}}
	for i, c := range list {
		a.err.SetStatus(fmt.Sprintf("[%d/%d] %s %s", i+1, len(list), op.Name(), c.Case))
		one, err := t.tune(ctx, c)
		if err != nil {
			return err
		}
		rep.Cases = append(rep.Cases, one)
	}
	a.err.SetStatus("")
	rep.Unread = t.unread()
	return a.printTune(rep)
}

// untuned returns the program without AITER_TUNE: the calls of the plan use no kept parameters.
func (a *app) untuned() *app {
	b := *a
	b.getenv = func(name string) string {
		if name == "AITER_TUNE" {
			return ""
		}
		return a.getenv(name)
	}
	return &b
}

// tuneReport is the result of tune --json. The names are part of the interface.
type tuneReport struct {
	Op     string      `json:"op"`
	Target string      `json:"target"`
	Device string      `json:"device"`
	Cases  []tunedCase `json:"cases"`
	Unread []string    `json:"unread"` // parameters that no case reads

	where string
}

// tunedCase is one case.
type tunedCase struct {
	Case       string           `json:"case"`
	Shapes     string           `json:"shapes"` // of the class; "" if nothing was measured
	Candidates int              `json:"candidates"`
	Params     map[string]int64 `json:"params"` // none: the plan
	PlanUS     float64          `json:"plan_us"`
	TunedUS    float64          `json:"tuned_us"`
	Rounds     int              `json:"rounds"`
	Wrong      []wrongCandidate `json:"wrong"`
}

// wrongCandidate is a combination of launch parameters with wrong results.
type wrongCandidate struct {
	Params map[string]int64 `json:"params"`
	Error  string           `json:"error"`
}

func (a *app) printTune(r *tuneReport) error {
	wrong := 0
	for _, c := range r.Cases {
		wrong += len(c.Wrong)
	}
	var err error
	if wrong > 0 {
		err = &verifyError{fmt.Sprintf("%s on %s: %s of launch parameters gave wrong results", r.Op, r.where,
			spelling.Count(wrong, "combination"))}
	}
	if a.json {
		return errors.Join(a.writeJSON(r), err)
	}
	fmt.Fprintf(a.out, "%s on %s (%s) for %s\n\n", r.Op, r.where, r.Device, r.Target)
	rows := [][]string{{"CASE", "CANDIDATES", "PLAN us", "CHOSEN us", "GAIN", "CHOSEN"}}
	for _, c := range r.Cases {
		if c.Shapes == "" {
			rows = append(rows, []string{c.Case, "0", "-", "-", "-", "it reads no launch parameter"})
			continue
		}
		rows = append(rows, []string{c.Case, fmt.Sprint(c.Candidates), fmt.Sprintf("%.1f", c.PlanUS), fmt.Sprintf("%.1f", c.TunedUS),
			fmt.Sprintf("%.1f%%", 100*(1-c.TunedUS/max(c.PlanUS, 1e-9))), tuning.Words(c.Params)})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	for _, c := range r.Cases {
		for _, w := range c.Wrong {
			fmt.Fprintf(a.out, "wrong: %s with %s: %s\n", c.Case, tuning.Words(w.Params), w.Error)
		}
	}
	for _, name := range r.Unread {
		fmt.Fprintf(a.err, "warning: no case reads the launch parameter %s; the operator reads it with tuned(%q, ...)\n", name, name)
	}
	return err
}
