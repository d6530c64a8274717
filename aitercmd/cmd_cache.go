package aitercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

func newCache(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "cache", Short: "Inspect and copy the kernel cache"})
	cmd.AddCommand(
		&cobra.Command{
			Use: "path", Short: "Print the cache folder that builds write to", Args: args(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error { return a.printCachePath() },
		},
		&cobra.Command{
			Use: "stats", Short: "Show the contents of the cache, and the hits and misses of builds", Args: args(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error { return a.cacheStats() },
		},
		newCacheList(a), newCacheShow(a), newVerify(a), newCacheExport(a), newCacheImport(a),
	)
	return cmd
}

func (a *app) printCachePath() error {
	o, err := a.cacheOptions()
	if err != nil {
		return err
	}
	path, err := o.Folder()
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(map[string]string{"path": path})
	}
	_, err = fmt.Fprintln(a.out, path)
	return err
}

// cacheStats runs the command cache stats.
func (a *app) cacheStats() error {
	store, err := a.openCache()
	if err != nil {
		return err
	}
	s, err := store.Stats()
	if err != nil {
		return err
	}
	if a.json {
		s.Artifacts, s.Modules, s.Targets = nonNil(s.Artifacts), nonNil(s.Modules), nonNil(s.Targets)
		s.Counts, s.ReadOnly = nonNil(s.Counts), nonNil(s.ReadOnly)
		return a.writeJSON(s)
	}
	rows := [][]string{{"MODULE", "TARGET", "SIZE", "LAST USED", "DIGEST"}}
	for _, x := range s.Artifacts {
		used := formatAge(time.Since(x.Used)) + " ago"
		rows = append(rows, []string{partName(x.Module, x.Part), x.Target, formatSize(x.Size), used, cache.Key(x.Digest).Short()})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if err := a.printShares(s); err != nil {
		return err
	}
	a.printCounts(s)
	a.printPulls(s)
	a.printExecutions(s)
	_, err = fmt.Fprintf(a.out, "\n%s: %s%s in %s and %s, %.1f s of compiling; %s, %s\n",
		s.Path, formatSize(s.Bytes), ofLimit(s.Limits), spelling.Count(len(s.Artifacts), "artifact"), spelling.Count(s.Objects, "object"),
		s.Seconds, spelling.Count(s.Corrupt, "corrupt file"), spelling.Count(s.Unfinished, "unfinished file"))
	return errors.Join(err, a.printReadOnly(store))
}

// printReadOnly prints the size of each read-only cache.
func (a *app) printReadOnly(store *cache.Dir) error {
	for _, d := range store.ReadOnly() {
		s, err := d.Stats()
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s (read-only): %s in %s\n", d.Path(), formatSize(s.Bytes), spelling.Count(len(s.Artifacts), "artifact"))
	}
	return nil
}

// ofLimit returns the size limit in words, "" for no limit.
func ofLimit(l cache.Limits) string {
	if l.Size == 0 {
		return ""
	}
	return " of at most " + formatSize(l.Size)
}

// printShares prints the sizes of each module and each target.
func (a *app) printShares(s cache.Stats) error {
	if len(s.Artifacts) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	rows := [][]string{{"MODULE OR TARGET", "ARTIFACTS", "SIZE WITH OBJECTS AND RECORDS"}}
	for _, list := range [][]cache.Share{s.Modules, s.Targets} {
		for _, x := range list {
			rows = append(rows, []string{x.Name, fmt.Sprint(x.Artifacts), formatSize(x.Bytes)})
		}
	}
	return a.table(rows)
}

// printExecutions prints the number of actions that were sent to a build farm, and why some of them ran on this machine.
func (a *app) printExecutions(s cache.Stats) {
	if s.Executions == 0 {
		return
	}
	fmt.Fprintf(a.out, "\nbuild farm: %d compiles and links, of which %d ran on this machine\n", s.Executions, s.ExecutionFaults)
	for _, c := range s.Counts {
		if c.Event == cache.Execution && c.Cause != "" {
			fmt.Fprintf(a.out, "  %6d  %s (%.1f s)\n", c.N, c.Cause, c.Seconds)
		}
	}
}

// printPulls prints the number of pulls, and why some of them failed.
func (a *app) printPulls(s cache.Stats) {
	if s.Pulls == 0 {
		return
	}
	fmt.Fprintf(a.out, "\npulls: %d, of which %d failed; %s\n", s.Pulls, s.PullFaults, spelling.Count(s.Pulled, "pulled cache"))
	for _, c := range s.Counts {
		if c.Event == cache.Pull && c.Cause != "" {
			fmt.Fprintf(a.out, "  %6d  %s (%.1f s)\n", c.N, c.Cause, c.Seconds)
		}
	}
}

// printCounts prints the hits and misses of units, and the causes of misses.
func (a *app) printCounts(s cache.Stats) {
	if s.Hits+s.Misses == 0 {
		return
	}
	fmt.Fprintf(a.out, "\nunits: %d hits, %d misses; %.1f s of compiling saved\n", s.Hits, s.Misses, s.Saved)
	for _, c := range s.Counts {
		if c.Event == cache.UnitMiss {
			fmt.Fprintf(a.out, "  %6d  %s (%.1f s)\n", c.N, cmp.Or(c.Cause, "unknown"), c.Seconds)
		}
	}
}

const verifyLong = `Check every artifact, object and record of the cache and of the read-only caches:
its content against its digest, and its name against the name inside it. The command
also checks the types of files (a pipe, link or folder with the name of a file is
damage), stored digests, counts, and extracted sources.

The command moves damaged entries to the folder quarantine, and the next build makes
them again. In a read-only cache they stay, and builds do not use them. The exit code
is 6 if the command finds damage.

The command also lists missing files: files that an artifact or a record names and that do
not exist. They are not damage: clean-cache and killed builds leave such gaps, and a build
that needs a missing file makes it again. In a cache made by build --output a missing file
is damage, because no build makes it there.

--rebuild compiles all stored modules again, in a temporary folder, and compares the
bytes. It skips modules whose inputs have changed.`

// verifyReport is the output of cache verify --json.
type verifyReport struct {
	cache.VerifyReport
	Rebuilt []jit.Comparison `json:"rebuilt"`
}

func newVerify(a *app) *cobra.Command {
	var rebuild bool
	cmd := &cobra.Command{
		Use:     "verify",
		Short:   "Read all entries and compare them with their digests",
		Long:    verifyLong,
		Example: "  aiterctl cache verify\n  aiterctl cache verify --rebuild --json",
		Args:    args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.cacheVerify(cmd.Context(), rebuild) },
	}
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "compile everything again and compare the bytes")
	return cmd
}

// cacheVerify runs the command cache verify.
func (a *app) cacheVerify(ctx context.Context, rebuild bool) error {
	store, err := a.openCache()
	if err != nil {
		return err
	}
	var rep verifyReport
	if rep.VerifyReport, err = jit.Verify(store); err != nil {
		return err
	}
	if rebuild {
		if rep.Rebuilt, err = a.rebuild(ctx, store); err != nil {
			return err
		}
	}
	rep.Faults, rep.Missing, rep.Rebuilt = nonNil(rep.Faults), nonNil(rep.Missing), nonNil(rep.Rebuilt)
	if a.json {
		err = a.writeJSON(rep)
	} else {
		a.printFaults(rep)
	}
	return errors.Join(err, rep.verdict())
}

// rebuild compiles the modules of the cache and the read-only caches again.
func (a *app) rebuild(ctx context.Context, store *cache.Dir) ([]jit.Comparison, error) {
	p := a.newProgress()
	defer p.close()
	m, err := a.openManager(ctx, func(s *settings.Settings) { s.Observer = p })
	if err != nil {
		return nil, err
	}
	defer m.Close()
	reqs, err := storedRequests(m.Config(), withReadOnly(store), nil)
	if err != nil {
		return nil, err
	}
	return m.Rebuild(ctx, reqs...)
}

// withReadOnly returns a cache and its read-only caches.
func withReadOnly(store *cache.Dir) []*cache.Dir {
	return append([]*cache.Dir{store}, store.ReadOnly()...)
}

// storedRequests returns the part requests of the artifacts that the configuration declares and match
// accepts, each once. A nil match accepts all.
func storedRequests(cfg *opconfig.Config, caches []*cache.Dir, match func(cache.Artifact) bool) ([]jit.Request, error) {
	var reqs []jit.Request
	for _, d := range caches {
		list, err := d.Artifacts()
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			if r, ok := requestFor(x, cfg); ok && (match == nil || match(x)) && !slices.Contains(reqs, r) {
				reqs = append(reqs, r)
			}
		}
	}
	return reqs, nil
}

// requestFor returns the part request of an artifact, if the configuration still
// declares it.
func requestFor(x cache.Artifact, cfg *opconfig.Config) (jit.Request, bool) {
	t, err := target.Parse(x.Target + "!")
	m, unknown := cfg.Module(x.Module)
	if err != nil || unknown != nil || !m.Supports(t) {
		return jit.Request{}, false
	}
	parts, err := m.Parts(t, opconfig.Selection{})
	for _, part := range append(parts, opconfig.Part{}) {
		if part.String() == x.Part {
			return jit.Request{Module: x.Module, Target: t, Part: part}, err == nil
		}
	}
	return jit.Request{}, false
}

func (a *app) printFaults(rep verifyReport) {
	for _, f := range slices.Concat(rep.Faults, rep.Missing) {
		fmt.Fprintf(a.out, "%s: %s\n", term.EscapeLine(f.Path), term.EscapeLine(f.Reason))
	}
	if len(rep.Faults) == 0 {
		fmt.Fprintf(a.out, "%d entries, all intact\n", rep.Checked)
	}
	if n := len(rep.Missing); n > 0 {
		fmt.Fprintf(a.out, "%s missing, which is not damage\n", spelling.Count(n, "file"))
	}
	for _, c := range rep.Rebuilt {
		fmt.Fprintf(a.out, "%s for %s: %s\n", partName(c.Module, c.Part), c.Target, comparisonResult(c))
		for _, u := range c.Units {
			if c.Skipped == "" && u.Stored != u.Rebuilt {
				fmt.Fprintf(a.out, "  %s: stored %s, rebuilt %s\n", u.Unit(), cache.Key(u.Stored).Short(), cache.Key(u.Rebuilt).Short())
			}
		}
	}
}

// comparisonResult describes the comparison of a module with a new build.
func comparisonResult(c jit.Comparison) string {
	switch {
	case c.Skipped != "":
		return "skipped: " + c.Skipped
	case c.Identical():
		return "identical"
	}
	return fmt.Sprintf("different: stored %s, rebuilt %s", cache.Key(c.Stored).Short(), cache.Key(c.Rebuilt).Short())
}

// verdict returns a [*verifyError] if an entry is damaged or a module differs.
func (rep verifyReport) verdict() error {
	var errs []error
	if n := len(rep.Faults); n > 0 {
		errs = append(errs, &verifyError{fmt.Sprintf("%d of %d entries of the cache are damaged: %s", n, rep.Checked, rep.disposition())})
	}
	different := 0
	for _, c := range rep.Rebuilt {
		if c.Skipped == "" && !c.Identical() {
			different++
		}
	}
	if different > 0 {
		errs = append(errs, &verifyError{fmt.Sprintf("%d of %d modules differ from a new build", different, len(rep.Rebuilt))})
	}
	return errors.Join(errs...)
}

// disposition describes where the damaged entries are.
func (rep verifyReport) disposition() string {
	kept := 0
	for _, f := range rep.Faults {
		if f.Kept {
			kept++
		}
	}
	var words []string
	if n := len(rep.Faults) - kept; n > 0 {
		words = append(words, fmt.Sprintf("%d in quarantine; the next build that needs them makes them again", n))
	}
	if kept > 0 {
		words = append(words, fmt.Sprintf("%d in place, because the cache is read-only or they cannot be read; builds do not use them", kept))
	}
	return strings.Join(words, "; ")
}
