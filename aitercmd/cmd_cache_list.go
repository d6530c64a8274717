package aitercmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/cache"
)

const cacheListLong = `List the artifacts of the cache and of the read-only caches: all, those of the named
modules, or those for the targets of --arch.`

const cacheShowLong = `Show one artifact: its module, target, operators, compiler, units and file. NAME is a
module or an operator with one artifact, or the first digits of the digest that cache
list prints.`

// artifactItem is an artifact in a list.
type artifactItem struct {
	cache.Artifact
	Path  string    `json:"path"`  // of the library
	Cache string    `json:"cache"` // the folder of the cache that holds it
	Used  time.Time `json:"used"`
}

func newCacheList(a *app) *cobra.Command {
	var arch string
	cmd := &cobra.Command{
		Use: "list [MODULE...]", Short: "List the artifacts", Long: cacheListLong, Args: cobra.ArbitraryArgs,
		ValidArgsFunction: a.moduleNames,
		RunE:              func(cmd *cobra.Command, names []string) error { return a.cacheList(cmd.Context(), names, arch) },
	}
	cmd.Flags().StringVar(&arch, "arch", "", "only these targets: gfx942,sm_90,cpu or native")
	a.completeArch(cmd)
	return cmd
}

func newCacheShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show an artifact", Long: cacheShowLong, Args: args(cobra.ExactArgs(1)),
		Example:           "  aiterctl cache show module_rms_norm\n  aiterctl cache show 7120ed047d96 --json",
		ValidArgsFunction: a.moduleNames,
		RunE:              func(_ *cobra.Command, args []string) error { return a.cacheShow(args[0]) },
	}
}

// artifacts returns the artifacts of the cache and of its read-only caches, by module and target.
func (a *app) artifacts() ([]artifactItem, error) {
	store, err := a.openCache()
	if err != nil {
		return nil, err
	}
	list := []artifactItem{}
	for _, d := range withReadOnly(store) {
		some, err := d.Artifacts()
		if err != nil {
			return nil, err
		}
		for _, x := range some {
			list = append(list, artifactItem{x, x.Path, d.Path(), x.Used})
		}
	}
	slices.SortStableFunc(list, func(x, y artifactItem) int {
		return cmp.Or(cmp.Compare(x.Module, y.Module), cmp.Compare(x.Target, y.Target), cmp.Compare(x.Part, y.Part))
	})
	return list, nil
}

func (a *app) cacheList(ctx context.Context, names []string, arch string) error {
	targets, err := a.cleanTargets(ctx, arch)
	if err != nil {
		return err
	}
	all, err := a.artifacts()
	if err != nil {
		return err
	}
	list := []artifactItem{}
	match := newMatcher(names, targets, partFilter{})
	for _, x := range all {
		if match == nil || match(x.Artifact) {
			list = append(list, x)
		}
	}
	if a.json {
		return a.writeJSON(map[string]any{"artifacts": list})
	}
	rows := [][]string{{"MODULE", "TARGET", "SIZE", "BUILT", "LAST USED", "DIGEST", "CACHE"}}
	for _, x := range list {
		rows = append(rows, []string{partName(x.Module, x.Part), x.Target, formatSize(x.Size), formatAge(time.Since(x.Built)) + " ago",
			formatAge(time.Since(x.Used)) + " ago", cache.Key(x.Digest).Short(), x.Cache})
	}
	return a.table(rows)
}

func (a *app) cacheShow(name string) error {
	all, err := a.artifacts()
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(slices.Clone(all), func(x artifactItem) bool {
		return x.Module != name && !slices.Contains(x.Ops, name) && (len(name) < minDigits || !strings.HasPrefix(x.Digest, name))
	})
	switch {
	case len(found) == 0:
		return usagef("no artifact of %q: expected a module or an operator with an artifact, or %d or more digits of a digest; aiterctl "+
			"cache list shows all artifacts", name, minDigits)
	case len(found) > 1 && slices.ContainsFunc(found, func(x artifactItem) bool { return x.ID != found[0].ID }):
		return usagef("%q has %d artifacts; give the digest of one, from aiterctl cache list %s", name, len(found), found[0].Module)
	}
	if a.json {
		return a.writeJSON(found[0])
	}
	return a.printArtifact(found[0])
}

// minDigits is the least number of digits that cache show accepts of a digest.
const minDigits = 4

func (a *app) printArtifact(x artifactItem) error {
	rows := [][]string{
		{"module", partName(x.Module, x.Part)},
		{"target", x.Target},
		{"operators", cmp.Or(strings.Join(x.Ops, ", "), "-")},
		{"compiler", x.Toolchain},
		{"built", fmt.Sprintf("%s, %.1f s of compiling", x.Built.Format(time.RFC3339), x.Seconds)},
		{"last used", x.Used.Format(time.RFC3339)},
		{"digest", x.Digest},
		{"file", fmt.Sprintf("%s (%s)", x.Path, formatSize(x.Size))},
	}
	for i, u := range x.Units {
		label := "units"
		if i > 0 {
			label = ""
		}
		rows = append(rows, []string{label, u.Source})
	}
	return a.table(rows)
}
