package aitercmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

const cleanLong = `Remove built modules from the cache, with the objects and records that only they
need: all modules, or the named ones, those for the targets of --arch, or those that
were not used for the time of --older-than. --op, --dtype and --axis select parts, as
in build; they never remove a whole module. --max-size and --max-count remove the
least recently used modules until the cache has that size or number of artifacts.

Builds also limit the cache: at most once an hour, a build that stores something
removes artifacts beyond AITER_JIT_MAX_SIZE, AITER_JIT_MAX_AGE or AITER_JIT_MAX_COUNT.

The command keeps modules that a running process has loaded. It may run while other
processes build.`

const cleanExample = `  aiterctl clean-cache
  aiterctl clean-cache module_causal_conv1d --arch gfx90a
  aiterctl clean-cache --op causal_conv1d_fwd --dtype bfloat16
  aiterctl clean-cache --older-than 30d --max-size 5GB --dry-run`

type cleanFlags struct {
	arch, olderThan, maxSize string
	maxCount                 int
	parts                    partFlags
	dryRun                   bool
}

func newCleanCache(a *app) *cobra.Command {
	f := new(cleanFlags)
	cmd := &cobra.Command{
		Use:               "clean-cache [MODULE...]",
		Short:             "Remove built modules",
		Long:              cleanLong,
		Example:           cleanExample,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.moduleNames,
		RunE:              func(cmd *cobra.Command, names []string) error { return a.clean(cmd.Context(), f, names) },
	}
	cmd.Flags().StringVar(&f.arch, "arch", "", "only these targets: gfx942,sm_90,cpu or native; gfx90a includes gfx90a:xnack-")
	cmd.Flags().StringVar(&f.olderThan, "older-than", "", "only modules that were not used for this time: 36h, 30d, 2w")
	cmd.Flags().StringVar(&f.maxSize, "max-size", "", "remove the least recently used until the cache has this size: 500MB, 5GB, 4GiB")
	cmd.Flags().IntVar(&f.maxCount, "max-count", 0, "remove the least recently used until the cache has this number of artifacts")
	f.parts.add(a, cmd)
	for name, usage := range map[string]string{
		"op":    "only parts with one of these operators",
		"dtype": "only parts for one of these element types: short for --axis dtype=...",
		"axis":  "only parts for one of the values of an axis, `NAME=VALUE,...`; a size stands for its range",
	} {
		cmd.Flags().Lookup(name).Usage = usage
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the modules that would be removed, and remove nothing")
	a.completeArch(cmd)
	return cmd
}

// clean runs the command clean-cache for the named modules.
func (a *app) clean(ctx context.Context, f *cleanFlags, names []string) error {
	req := cache.CleanRequest{DryRun: f.dryRun, MaxCount: f.maxCount}
	if f.maxCount < 0 {
		return usagef("--max-count %d: expected 1 or more", f.maxCount)
	}
	var err error
	if req.OlderThan, err = parseAge(f.olderThan); err != nil {
		return err
	}
	if req.MaxSize, err = parseSize(f.maxSize); err != nil {
		return err
	}
	targets, err := a.cleanTargets(ctx, f.arch)
	if err != nil {
		return err
	}
	store, err := a.openCache()
	if err != nil {
		return err
	}
	parts, err := f.parts.filter()
	if err != nil {
		return err
	}
	if err := a.checkNames(store, names, parts); err != nil {
		return err
	}
	req.Match = newMatcher(names, targets, parts)
	rep, err := store.Clean(req)
	if err != nil {
		return err
	}
	return a.printClean(rep, f.dryRun)
}

// cleanTargets returns the targets of --arch, none without the flag.
func (a *app) cleanTargets(ctx context.Context, arch string) ([]target.Target, error) {
	if arch == "" { // GPU_ARCHS applies to builds only
		return nil, nil
	}
	return a.targets(ctx, arch)
}

// checkNames refuses a name that neither the cache nor the configuration has. Without
// this check the command would remove nothing and hide the misspelling.
func (a *app) checkNames(store *cache.Dir, names []string, parts partFilter) error {
	have, err := store.Artifacts()
	if err != nil {
		return err
	}
	cfg, broken := a.loadConfig()
	if broken != nil {
		return nil
	}
	for _, name := range names {
		if slices.ContainsFunc(have, func(x cache.Artifact) bool { return x.Module == name }) {
			continue
		}
		if _, err := cfg.Module(name); err != nil {
			return err
		}
	}
	return parts.check(cfg, have)
}

// newMatcher returns a filter of artifacts; nil selects all.
func newMatcher(names []string, targets []target.Target, parts partFilter) func(cache.Artifact) bool {
	if len(names) == 0 && len(targets) == 0 && parts.empty() {
		return nil
	}
	return func(x cache.Artifact) bool {
		return (len(names) == 0 || slices.Contains(names, x.Module)) &&
			(len(targets) == 0 || matchesTarget(targets, x.Target)) && parts.matches(x)
	}
}

// matchesTarget reports whether a list has a target, or its architecture without
// features.
func matchesTarget(list []target.Target, name string) bool {
	t, err := target.Parse(name + "!")
	return err == nil && slices.ContainsFunc(list, func(want target.Target) bool {
		return want == t || want.Features() == "" && want.Arch() == t.Arch()
	})
}

func (a *app) printClean(rep cache.CleanReport, dryRun bool) error {
	rep.Removed, rep.InUse = nonNil(rep.Removed), nonNil(rep.InUse)
	if a.json {
		return a.writeJSON(rep)
	}
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	for _, x := range rep.Removed {
		fmt.Fprintf(a.out, "%s %s for %s (%s, used %s ago)\n",
			verb, partName(x.Module, x.Part), x.Target, formatSize(x.Size), formatAge(time.Since(x.Used)))
	}
	for _, x := range rep.InUse {
		fmt.Fprintf(a.out, "kept %s for %s: in use\n", partName(x.Module, x.Part), x.Target)
	}
	_, err := fmt.Fprintf(a.out, "%s %s and %s, %s\n",
		verb, spelling.Count(len(rep.Removed), "artifact"), spelling.Count(rep.Orphans, "other file"), formatSize(rep.Bytes))
	return err
}

// partFilter selects artifacts of parts.
type partFilter struct {
	ops    []string
	values map[string][]string // by axis
}

func (f *partFlags) filter() (partFilter, error) {
	values, err := f.values()
	return partFilter{f.ops, values}, err
}

func (f partFilter) empty() bool { return len(f.ops)+len(f.values) == 0 }

// matches reports whether an artifact is a part with one of the operators, for one of
// the values of each axis. A filter that is not empty matches no whole module. A size
// matches every range that contains it, also a range of an earlier configuration.
func (f partFilter) matches(x cache.Artifact) bool {
	if f.empty() {
		return true
	}
	if x.Part == "" || len(f.ops) > 0 && !slices.ContainsFunc(x.Ops, func(op string) bool { return slices.Contains(f.ops, op) }) {
		return false
	}
	made := partValues(x.Part)
	for axis, wanted := range f.values {
		if !slices.ContainsFunc(wanted, func(v string) bool { return selects(v, made[axis]) }) {
			return false
		}
	}
	return true
}

// selects reports whether a word of the command line stands for a value in the name of a part: it is the value, a short name of the
// element type, or a size in the range. The configuration may not have the axis any more.
func selects(word, value string) bool {
	dt, err := tensor.ParseDType(word)
	return word == value || err == nil && dt.String() == value || rangeContains(value, word)
}

// rangeContains reports whether a value is a range that contains a size.
func rangeContains(value, size string) bool {
	r, isRange := opconfig.ParseRange(value)
	n, isSize := opconfig.ParseSize(size)
	return isRange && isSize && r.Contains(n)
}

// partValues returns the axis values in the name of a part, such as
// "causal_conv1d_fwd dtype=float16".
func partValues(part string) map[string]string {
	values := map[string]string{}
	words := strings.Fields(part)
	for pair := range strings.SplitSeq(words[len(words)-1], ",") {
		if axis, value, ok := strings.Cut(pair, "="); ok {
			values[axis] = value
		}
	}
	return values
}

// check refuses operators and values that neither the configuration nor the cache has.
func (f partFilter) check(cfg *opconfig.Config, have []cache.Artifact) error {
	for _, op := range f.ops {
		if slices.ContainsFunc(have, func(x cache.Artifact) bool { return slices.Contains(x.Ops, op) }) {
			continue
		}
		if _, _, err := cfg.Op(op); err != nil {
			return err
		}
	}
	for axis, values := range f.values {
		for _, v := range values {
			one := partFilter{values: map[string][]string{axis: {v}}}
			if slices.ContainsFunc(have, one.matches) {
				continue
			}
			if err := checkValue(cfg, axis, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkValue refuses a value that no module's axis of that name has. If some module has the
// axis, the error lists the values of that module's axis.
func checkValue(cfg *opconfig.Config, axis, value string) error {
	var refusal error
	for _, m := range cfg.Modules {
		_, err := m.Values(axis, []string{value})
		if err == nil {
			return nil
		}
		if has := slices.ContainsFunc(m.Axes, func(a opconfig.Axis) bool { return a.Name == axis }); has || refusal == nil {
			refusal = err
		}
	}
	return refusal
}
