package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/jit/cache"
)

func newCache(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "cache", Short: "Look into the kernel cache"})
	cmd.AddCommand(
		&cobra.Command{
			Use: "path", Short: "Print the cache folder", Args: args(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error { return a.printCachePath() },
		},
		&cobra.Command{
			Use: "stats", Short: "Show what the cache holds", Args: args(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error { return a.cacheStats() },
		},
		&cobra.Command{
			Use: "verify", Short: "Read everything through and compare it with its digests",
			Long: "Read every artifact, object and record and compare it with its digest. What does\nnot match is put aside, and made anew by the next build.",
			Args: args(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error { return a.cacheVerify() },
		},
	)
	return cmd
}

func (a *app) printCachePath() error {
	path, err := a.cachePath()
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(map[string]string{"path": path})
	}
	_, err = fmt.Fprintln(a.out, path)
	return err
}

func (a *app) cacheStats() error {
	store, err := a.openCache()
	if err != nil {
		return err
	}
	s, err := store.Stats()
	if err != nil {
		return err
	}
	s.Artifacts = nonNil(s.Artifacts)
	if a.json {
		return a.writeJSON(s)
	}
	rows := [][]string{{"MODULE", "TARGET", "SIZE", "LAST USED", "DIGEST"}}
	for _, x := range s.Artifacts {
		rows = append(rows, []string{partName(x.Module, x.Spec), x.Target, sizeWords(x.Size), age(time.Since(x.Used)) + " ago", cache.Key(x.Digest).Short()})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "\n%s: %s in %d artifacts and %d objects, %.1f s of compiling; %d corrupt, %d unfinished files\n",
		s.Path, sizeWords(s.Bytes), len(s.Artifacts), s.Objects, s.Seconds, s.Corrupt, s.Unfinished)
	return err
}

func (a *app) cacheVerify() error {
	store, err := a.openCache()
	if err != nil {
		return err
	}
	rep, err := store.Verify()
	if err != nil {
		return err
	}
	rep.Faults = nonNil(rep.Faults)
	if a.json {
		err = a.writeJSON(rep)
	} else {
		a.printFaults(rep)
	}
	if err == nil && len(rep.Faults) > 0 {
		err = &verifyError{fmt.Sprintf("%d of %d entries of the cache were corrupt and have been put aside; the next build makes them anew", len(rep.Faults), rep.Checked)}
	}
	return err
}

func (a *app) printFaults(rep cache.VerifyReport) {
	for _, f := range rep.Faults {
		fmt.Fprintf(a.out, "%s: %s\n", f.Path, f.Reason)
	}
	if len(rep.Faults) == 0 {
		fmt.Fprintf(a.out, "%d entries, all as they were written\n", rep.Checked)
	}
}
