package aitercmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit/target"
)

const pullLong = `Pull a set of kernels from a registry or a folder (https://HOST/FOLDER), for the targets of
this machine or of --arch, and for the CPU. The command uses a set only if REF has a digest, or if a
key of --keys or AITER_JIT_KEYS has signed it.

Without --output the kernels become read-only caches below the kernel cache. Programs
with this REF in AITER_JIT_REMOTE find them there and open no connection. --output DIR writes a prebuilt
cache instead, for AITER_JIT_PATH, as build --output does.

A pull that is not complete within --timeout fails. Without --output the next pull continues it.`

// pullFlags are the flags of pull.
type pullFlags struct {
	arch, output, keys string
	all                bool
	timeout            time.Duration
}

func newPull(a *app) *cobra.Command {
	f := new(pullFlags)
	cmd := &cobra.Command{
		Use: "pull REF", Short: "Pull kernels from a registry", Long: pullLong,
		Example: "  aiterctl pull registry.example/aiter/kernels:v1 --keys ci.pub\n" +
			"  aiterctl pull registry.example/aiter/kernels@sha256:... --arch gfx942 --output /tmp/aiter",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.all && f.arch != "" {
				return usagef("give --arch or --all, not both")
			}
			if cmd.Flags().Changed("output") && f.output == "" {
				return usagef("--output is empty: expected a folder; if a variable names it, the variable is not set")
			}
			if err := checkPositive(cmd, "timeout", f.timeout, "90s or 20m"); err != nil {
				return err
			}
			return a.pull(cmd.Context(), f, args[0])
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.arch, "arch", "", archUsage)
	fl.BoolVar(&f.all, "all", false, "all targets of the set")
	fl.StringVar(&f.output, "output", "", "write a prebuilt cache to `DIR`")
	fl.StringVar(&f.keys, "keys", "", "file or folder of public keys in PEM (default $AITER_JIT_KEYS)")
	fl.DurationVar(&f.timeout, "timeout", 0, "limit of the whole pull (default: $AITER_JIT_REMOTE_WAIT or 20s, and 4s for each MB of layers)")
	a.completeArch(cmd)
	return cmd
}

// pull runs the command pull.
func (a *app) pull(ctx context.Context, f *pullFlags, reference string) error {
	ref, err := fleet.ParseReference(reference)
	if err != nil {
		return err
	}
	o, err := a.fleetOptions(f.keys)
	if err != nil {
		return err
	}
	o.Timeout = f.timeout
	targets, err := a.pullTargets(ctx, f)
	if err != nil {
		return err
	}
	if f.output != "" {
		return a.pullTo(ctx, ref, f.output, targets, o)
	}
	store, err := a.openCache()
	if err != nil {
		return err
	}
	if err := store.Writable(); err != nil {
		return err
	}
	rep, err := fleet.Warm(ctx, ref, store, targets, o)
	if err != nil {
		return err
	}
	return a.printPull(rep, "to use it: export AITER_JIT_REMOTE="+reference)
}

// pullTargets returns the targets of the flags and the CPU, nil for all.
func (a *app) pullTargets(ctx context.Context, f *pullFlags) ([]string, error) {
	if f.all {
		return nil, nil
	}
	list, err := a.targets(ctx, f.arch)
	if err != nil {
		return nil, err
	}
	names := []string{target.Host().String()} // the target of the support library
	for _, t := range list {
		names = append(names, t.String())
	}
	return names, nil
}

// pullTo writes a prebuilt cache.
func (a *app) pullTo(ctx context.Context, ref fleet.Reference, dir string, targets []string, o fleet.Options) error {
	if err := a.checkOutput(dir); err != nil {
		return err
	}
	trust, err := a.cacheOptions()
	if err != nil {
		return err
	}
	to, err := cache.Open(dir, cache.Options{TrustForeign: trust.Trust})
	if err != nil {
		return newOutputError(err)
	}
	rep, err := fleet.Copy(ctx, ref, to, targets, o)
	if err != nil {
		return err
	}
	if err := to.MakeReadable(); err != nil {
		return newOutputError(err)
	}
	return a.printPull(rep, "to use it: export AITER_JIT_PATH="+to.Path())
}

func (a *app) printPull(rep fleet.PullReport, last string) error {
	if a.json {
		return a.writeJSON(rep)
	}
	if err := a.printSet(rep); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.out, last)
	return err
}

// printSet prints the artifacts of a set, its digest, and the key that signed it.
func (a *app) printSet(rep fleet.PullReport) error {
	rows := [][]string{{"MODULE", "TARGET", "SIZE", "PACKED", "DIGEST"}}
	for _, l := range rep.Layers {
		name := "(records)"
		if l.Module != "" {
			name = partName(l.Module, l.Part)
		}
		rows = append(rows, []string{name, l.Target, formatSize(l.Size), formatSize(l.Packed), l.Digest})
	}
	trust := "trusted: signed by the key " + cache.Key(rep.Key).Short()
	switch {
	case rep.Refused != "":
		trust = "not trusted: " + rep.Refused
	case rep.Key == "" && rep.Pinned:
		trust = "trusted: the reference has the digest"
	}
	err := a.table(rows)
	_, errPrint := fmt.Fprintf(a.out, "\n%s\n%s\n%s\n", rep.Reference, rep.Digest, trust)
	return cmp.Or(err, errPrint)
}

const inspectRemoteLong = `Show the artifacts of a set in a registry, its digest, and whether nodes with AITER_JIT_KEYS (or
--keys) would use it. The command pulls no kernels. Its exit code is 6 if nodes would refuse the set.`

func newInspectRemote(a *app) *cobra.Command {
	keys := ""
	cmd := &cobra.Command{
		Use: "inspect-remote REF", Short: "Show a set of kernels in a registry", Long: inspectRemoteLong,
		Example: "  aiterctl inspect-remote registry.example/aiter/kernels:v1 --keys ci.pub",
		Args:    args(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.inspectRemote(cmd.Context(), args[0], keys) },
	}
	cmd.Flags().StringVar(&keys, "keys", "", "file or folder of public keys in PEM (default $AITER_JIT_KEYS)")
	return cmd
}

func (a *app) inspectRemote(ctx context.Context, reference, keys string) error {
	ref, err := fleet.ParseReference(reference)
	if err != nil {
		return err
	}
	o, err := a.fleetOptions(keys)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	rep, err := fleet.Inspect(ctx, ref, o)
	if err != nil {
		return err
	}
	if a.json {
		err = a.writeJSON(rep)
	} else {
		err = a.printSet(rep)
	}
	if err == nil && rep.Refused != "" {
		err = &verifyError{"nodes refuse the set " + rep.Reference}
	}
	return err
}
