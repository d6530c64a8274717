package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit/target"
)

const cleanLong = `Remove built modules from the cache, with the objects and records that only they
need: all of them, or those of the named modules, of the targets of --arch, or
not used for as long as --older-than says. --op, --dtype and --axis, as build has
them, choose among what was built in parts; a module built whole stays then. With --max-size the least recently
used are removed until the whole cache fits, with --max-count until there are no more.

Beside that it keeps itself small: once an hour, after a build that added to it,
what exceeds AITER_JIT_MAX_SIZE, _MAX_AGE or _MAX_COUNT goes.

What a living process has loaded stays. It is safe while others build.`

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
		Example:           "  aiterctl clean-cache\n  aiterctl clean-cache module_causal_conv1d --arch gfx90a\n  aiterctl clean-cache --op causal_conv1d_fwd --dtype bfloat16\n  aiterctl clean-cache --older-than 30d --max-size 5GB --dry-run",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.moduleNames,
		RunE:              func(cmd *cobra.Command, names []string) error { return a.clean(cmd.Context(), f, names) },
	}
	cmd.Flags().StringVar(&f.arch, "arch", "", "only these targets: gfx942,sm_90,cpu or native; gfx90a includes gfx90a:xnack-")
	cmd.Flags().StringVar(&f.olderThan, "older-than", "", "only what was not used for so long: 36h, 30d, 2w")
	cmd.Flags().StringVar(&f.maxSize, "max-size", "", "only until the cache has this size: 500MB, 5GB, 4GiB")
	cmd.Flags().IntVar(&f.maxCount, "max-count", 0, "only until the cache has so many artifacts")
	f.parts.add(a, cmd)
	for name, usage := range map[string]string{
		"op":    "only parts with one of these operators",
		"dtype": "only parts for one of these element types: short for --axis dtype=...",
		"axis":  "only parts for one of these values of an axis; a size stands for its range: `NAME=VALUE,...`",
	} {
		cmd.Flags().Lookup(name).Usage = usage
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be removed")
	a.completeArch(cmd)
	return cmd
}

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
	store, err := a.openCache(ctx)
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
	req.Match = matcher(names, targets, parts)
	rep, err := store.Clean(req)
	if err != nil {
		return err
	}
	return a.printClean(rep, f.dryRun)
}

func (a *app) cleanTargets(ctx context.Context, arch string) ([]target.Target, error) {
	if arch == "" { // GPU_ARCHS says what to build, not what to remove
		return nil, nil
	}
	devs, err := a.openDevices()
	if err != nil {
		return nil, err
	}
	defer devs.Close()
	return a.targets(ctx, devs, arch)
}

// checkNames refuses a name that neither the cache nor the configuration has:
// it is a slip of the pen, and removing nothing would hide it.
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

// matcher picks artifacts; nil picks all.
func matcher(names []string, targets []target.Target, parts partFilter) func(cache.Artifact) bool {
	if len(names) == 0 && len(targets) == 0 && parts.empty() {
		return nil
	}
	return func(x cache.Artifact) bool {
		return (len(names) == 0 || slices.Contains(names, x.Module)) && (len(targets) == 0 || covers(targets, x.Target)) && parts.picks(x)
	}
}

// covers says whether a list has a target, or its architecture without any
// features.
func covers(list []target.Target, name string) bool {
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
		fmt.Fprintf(a.out, "%s %s for %s (%s, used %s ago)\n", verb, partName(x.Module, x.Part), x.Target, sizeWords(x.Size), age(time.Since(x.Used)))
	}
	for _, x := range rep.InUse {
		fmt.Fprintf(a.out, "kept %s for %s: in use\n", partName(x.Module, x.Part), x.Target)
	}
	_, err := fmt.Fprintf(a.out, "%s %d artifacts and %d other files, %s\n", verb, len(rep.Removed), rep.Orphans, sizeWords(rep.Bytes))
	return err
}
