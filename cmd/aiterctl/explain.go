package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
)

const explainLong = `Show which parts make the key of each unit of a module, whether a build would
compile it now, and what changed since the last build. Nothing is built. With
--op, --dtype or --axis it is about those parts of the module.

Where there is no compiler it is about what was built before, here or into a
cache of AITER_JIT_PATH, and says whether a build would take that.

--verbose adds the files of the toolchain and every header of the source tree.`

func newExplain(a *app) *cobra.Command {
	var arch string
	var parts partFlags
	cmd := &cobra.Command{
		Use:               "explain MODULE",
		Short:             "Show what makes a module's key, and what changed",
		Long:              explainLong,
		Example:           "  aiterctl explain module_causal_conv1d --arch cpu",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.moduleNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.explain(cmd.Context(), args[0], arch, &parts)
		},
	}
	cmd.Flags().StringVar(&arch, "arch", "", archUsage)
	a.completeArch(cmd)
	parts.add(a, cmd)
	return cmd
}

func (a *app) explain(ctx context.Context, module, arch string, parts *partFlags) error {
	reg, err := a.openRegistry(ctx, registry.Options{})
	if err != nil {
		return err
	}
	defer reg.Close()
	targets, err := a.targets(ctx, reg.Devices(), arch)
	if err != nil {
		return err
	}
	reqs, err := request{[]string{module}, false, parts, targets}.wanted(reg.Manager().Config())
	if err != nil {
		return err
	}
	list := []*jit.Explanation{}
	for _, r := range reqs {
		x, err := reg.Manager().Explain(ctx, r)
		if err != nil {
			return err
		}
		list = append(list, x)
	}
	if a.json {
		return a.writeJSON(map[string]any{"explanations": list})
	}
	for _, x := range list {
		a.printExplanation(x)
	}
	return nil
}

func (a *app) printExplanation(x *jit.Explanation) {
	fmt.Fprintf(a.out, "%s for %s\n  compiler    %s (%d files make its identity)\n", partName(x.Module, x.Part), x.Target, x.Compiler, len(x.Toolchain))
	if x.NoCompiler != "" {
		fmt.Fprintf(a.out, "  not here    %s\n", strings.ReplaceAll(x.NoCompiler, "\n", "\n              "))
	}
	built := "never, as far as this cache knows"
	if x.LastBuilt != nil {
		built = fmt.Sprintf("%s (%s ago)", x.LastBuilt.Format(time.DateTime), age(time.Since(*x.LastBuilt)))
	}
	fmt.Fprintf(a.out, "  last built  %s\n", built)
	if x.Whole {
		fmt.Fprintln(a.out, "  whole       the cache has the whole module, which calls use instead of this part")
	}
	if a.verbose {
		for _, p := range x.Toolchain {
			fmt.Fprintf(a.out, "    %s  %s  %s\n", cache.Key(p.Digest).Short(), p.Name, p.Path)
		}
	}
	a.printChanges("    files of the compiler that are not those of the last build:", x.Replaced)
	for _, u := range x.Units {
		a.printUnit(u, x.NoCompiler == "")
	}
	a.printLink(x.Link, x.NoCompiler == "")
}

// decision says what a build would do with a unit or a link.
func decision(action jit.Status, reason, work string, compiler bool) string {
	switch {
	case action == jit.Hit:
		return "hit: " + reason
	case !compiler:
		return "cannot be used: " + reason
	}
	return "would be " + work + ": " + reason
}

func (a *app) printLink(l jit.LinkExplanation, compiler bool) {
	fmt.Fprintf(a.out, "\n  link\n    %s\n    key %s\n", decision(l.Status, l.Reason, "linked", compiler), firstOf(l.Key.Short(), "(not known yet)"))
	for _, line := range l.Lines {
		fmt.Fprintf(a.out, "      %s = %s\n", line.Label, line.Value)
	}
	a.printChanges("    changed since the last build:", l.Changes)
}

func (a *app) printChanges(heading string, list []jit.Change) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(a.out, heading)
	for _, c := range list {
		fmt.Fprintf(a.out, "      %s\n        before  %s\n        now     %s\n", c.Label, firstOf(c.Before, "(not there)"), firstOf(c.After, "(not there)"))
	}
}

func (a *app) printUnit(u jit.UnitExplanation, compiler bool) {
	fmt.Fprintf(a.out, "\n  %s\n    %s\n    key %s\n", unitTarget(u.Unit(), u.Values), decision(u.Status, u.Reason, "compiled", compiler), u.Key.Short())
	for _, l := range u.Lines {
		fmt.Fprintf(a.out, "      %s = %s\n", l.Label, l.Value)
	}
	fmt.Fprintf(a.out, "    headers: %d of the source tree, %d of the system\n", len(u.Headers), u.System)
	if a.verbose {
		for _, h := range u.Headers {
			fmt.Fprintf(a.out, "      %s  %s\n", cache.Key(h.Value).Short(), h.Label)
		}
	}
	a.printChanges("    changed since the last build:", u.Changes)
}

// age is a duration in one unit, for people.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
