package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
)

const verifyLong = `Check every artifact, object and record of the cache and of the read-only caches:
its content against its digest, and its name against the name inside it. The command
also checks the types of files (a pipe, link or folder in the place of a file is
damage), remembered digests, counts, and laid-out sources.

The command moves damaged entries to the folder quarantine, and the next build makes
them again. In a read-only cache they stay, and builds do not use them. The exit code
is 6 if it finds damage.

The command also lists missing files: those that an artifact or a record names and that
do not exist. They are no failure: clean-cache and a build that was killed leave such
gaps, and a build that needs a missing file makes it again. In a cache made by
build --output a missing file is damage, because no build makes it there.

--rebuild compiles all stored modules again, in a scratch folder, and compares the
bytes. It skips modules whose inputs have changed.`

// verifyReport is what cache verify --json prints.
type verifyReport struct {
	cache.VerifyReport
	Rebuilt []jit.Comparison `json:"rebuilt"`
}

func newVerify(a *app) *cobra.Command {
	var rebuild bool
	cmd := &cobra.Command{
		Use:     "verify",
		Short:   "Read everything through and compare it with its digests",
		Long:    verifyLong,
		Example: "  aiterctl cache verify\n  aiterctl cache verify --rebuild --json",
		Args:    args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.cacheVerify(cmd.Context(), rebuild) },
	}
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "compile everything once more and compare the bytes")
	return cmd
}

func (a *app) cacheVerify(ctx context.Context, rebuild bool) error {
	store, err := a.openCache(ctx)
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

// rebuild compiles what the cache and the tiers hold once more.
func (a *app) rebuild(ctx context.Context, store *cache.Dir) ([]jit.Comparison, error) {
	p := a.newProgress()
	defer p.close()
	reg, err := a.openRegistry(ctx, registry.Options{Observer: p})
	if err != nil {
		return nil, err
	}
	defer reg.Close()
	reqs, err := stored(store, reg.Manager().Config())
	if err != nil {
		return nil, err
	}
	return reg.Manager().Rebuild(ctx, reqs...)
}

// stored are the modules and targets that a cache has, as far as the
// configuration knows them, each once.
func stored(store *cache.Dir, cfg *opconfig.Config) ([]jit.Request, error) {
	var reqs []jit.Request
	for _, d := range append([]*cache.Dir{store}, store.ReadOnly()...) {
		list, err := d.Artifacts()
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			if r, ok := requestFor(x, cfg); ok && !slices.Contains(reqs, r) {
				reqs = append(reqs, r)
			}
		}
	}
	return reqs, nil
}

// requestFor is what an artifact was built for, if the configuration still has
// that.
func requestFor(x cache.Artifact, cfg *opconfig.Config) (jit.Request, bool) {
	t, err := target.Parse(x.Target + "!")
	m, unknown := cfg.Module(x.Module)
	if err != nil || unknown != nil || !m.Supports(t) {
		return jit.Request{}, false
	}
	parts, err := m.Parts(t, opconfig.Selection{})
	for _, spec := range append(parts, opconfig.Part{}) {
		if spec.String() == x.Part {
			return jit.Request{Module: x.Module, Target: t, Part: spec}, err == nil
		}
	}
	return jit.Request{}, false
}

func (a *app) printFaults(rep verifyReport) {
	for _, f := range slices.Concat(rep.Faults, rep.Missing) {
		fmt.Fprintf(a.out, "%s: %s\n", shown(f.Path), shown(f.Reason))
	}
	if len(rep.Faults) == 0 {
		fmt.Fprintf(a.out, "%d entries, all as they were written\n", rep.Checked)
	}
	if n := len(rep.Missing); n > 0 {
		fmt.Fprintf(a.out, "%d missing, which is no damage\n", n)
	}
	for _, c := range rep.Rebuilt {
		fmt.Fprintf(a.out, "%s for %s: %s\n", partName(c.Module, c.Part), c.Target, comparisonWords(c))
		for _, u := range c.Units {
			if c.Skipped == "" && u.Stored != u.Rebuilt {
				fmt.Fprintf(a.out, "  %s: stored %s, rebuilt %s\n", u.Unit(), cache.Key(u.Stored).Short(), cache.Key(u.Rebuilt).Short())
			}
		}
	}
}

// shown quotes text with control characters, which come from names of files.
func shown(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

func comparisonWords(c jit.Comparison) string {
	switch {
	case c.Skipped != "":
		return "skipped: " + c.Skipped
	case c.Identical():
		return "the same bytes once more"
	}
	return fmt.Sprintf("DIFFERENT: stored %s, rebuilt %s", cache.Key(c.Stored).Short(), cache.Key(c.Rebuilt).Short())
}

// verdict is a [*verifyError] when anything is wrong.
func (rep verifyReport) verdict() error {
	var errs []error
	if n := len(rep.Faults); n > 0 {
		errs = append(errs, &verifyError{fmt.Sprintf("%d of %d entries of the cache are damaged: %s", n, rep.Checked, rep.whatNow())})
	}
	different := 0
	for _, c := range rep.Rebuilt {
		if c.Skipped == "" && !c.Identical() {
			different++
		}
	}
	if different > 0 {
		errs = append(errs, &verifyError{fmt.Sprintf("%d of %d modules are not what building them again gives", different, len(rep.Rebuilt))})
	}
	return errors.Join(errs...)
}

// whatNow describes where the damaged entries are now.
func (rep verifyReport) whatNow() string {
	kept := 0
	for _, f := range rep.Faults {
		if f.Kept {
			kept++
		}
	}
	var words []string
	if n := len(rep.Faults) - kept; n > 0 {
		words = append(words, fmt.Sprintf("%d put aside; the next build that needs them makes them again", n))
	}
	if kept > 0 {
		words = append(words, fmt.Sprintf("%d left as they are, because the cache is read-only or they cannot be read; builds do not use them", kept))
	}
	return strings.Join(words, "; ")
}
