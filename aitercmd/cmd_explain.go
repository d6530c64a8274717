package aitercmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/tuning"
	"github.com/aiter-go/aiter/jit"
)

const explainLong = `Show the key of each unit of a module with its inputs, the decision of a build (use
the object in the cache, or compile), the changes since the last build, and the launch
parameters that tune has kept. The command builds nothing. With --op, --dtype or --axis
it explains those parts of the module.

With AITER_JIT_REMOTE it also shows the pulled caches of the module, which of them has the
library, and a fault of the registry within the last minute. It opens no connection.

Without a compiler it explains the last build in the cache and the read-only caches,
and the decision to use its results.

--verbose adds the files of the toolchain and every header of the source tree.`

func newExplain(a *app) *cobra.Command {
	var arch string
	var parts partFlags
	cmd := &cobra.Command{
		Use:               "explain MODULE|OPERATOR",
		Short:             "Show the inputs of a module's keys, and the changes since the last build",
		Long:              explainLong,
		Example:           "  aiterctl explain module_causal_conv1d --arch cpu",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.allNames,
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
	m, err := a.openManager(ctx, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	targets, err := a.targets(ctx, arch)
	if err != nil {
		return err
	}
	reqs, err := moduleSelection{[]string{module}, false, parts, targets}.requests(m.Config())
	if err != nil {
		return err
	}
	store, err := a.openCache()
	if err != nil {
		return err
	}
	pulled := fleet.ReadState(store, a.getenv)
	list := []explanation{}
	for _, r := range reqs {
		x, err := m.Explain(ctx, r)
		if err != nil {
			return err
		}
		list = append(list, newExplanation(x, pulled))
	}
	if a.json {
		return a.writeJSON(map[string]any{"explanations": list})
	}
	for _, x := range list {
		a.printExplanation(x)
	}
	return nil
}

// explanation explains a request, and lists the pulled caches for its module and target.
type explanation struct {
	*jit.Explanation
	Pulled    []pulledUse       `json:"pulled"`
	Remote    string            `json:"remote"`    // reference of AITER_JIT_REMOTE
	Suspended *fleet.Suspension `json:"suspended"` // null: a build that misses something queries the registry
}

// pulledUse is a pulled cache, and whether a build of a request would use it.
type pulledUse struct {
	fleet.PulledCache
	Has  bool   `json:"has"`  // it has the library that a build would use
	Miss string `json:"miss"` // why not, "" if it has
}

func newExplanation(x *jit.Explanation, st fleet.State) explanation {
	out := explanation{Explanation: x, Pulled: []pulledUse{}, Remote: st.Reference, Suspended: st.Suspended}
	for _, p := range st.Caches {
		if p.Module != x.Module || p.Target != x.Target {
			continue
		}
		use := pulledUse{PulledCache: p, Has: x.ReadOnly != "" && x.ReadOnly == p.Path}
		switch {
		case use.Has:
		case p.Refused != "":
			use.Miss = "refused: " + p.Refused
		case x.Artifact != "":
			use.Miss = "not needed: the library is in " + cmp.Or(x.ReadOnly, "the cache")
		default:
			use.Miss = "its artifacts were built from other inputs: " + firstMiss(x)
		}
		out.Pulled = append(out.Pulled, use)
	}
	return out
}

// firstMiss describes the first miss of an explanation.
func firstMiss(x *jit.Explanation) string {
	for _, u := range x.Units {
		if !u.Miss.IsHit() {
			return u.Source + ": " + u.Reason
		}
	}
	return x.Link.Reason
}

// printSource prints the library that a build would use, and the pulled caches.
func (a *app) printSource(x explanation) {
	if x.Artifact != "" {
		fmt.Fprintf(a.out, "  library     %s\n", x.Artifact)
	}
	for _, p := range x.Pulled {
		fmt.Fprintf(a.out, "  pulled      %s, %s, signed by %s, %s\n              %s\n", p.Reference, shortDigest(p.Digest),
			signerOf(p.PulledCache), p.Pulled.Local().Format(time.DateTime), cmp.Or(p.Miss, "has the library"))
	}
	switch {
	case x.Suspended != nil:
		fmt.Fprintf(a.out, "  registry    %s: %s\n", x.Remote, x.Suspended)
	case x.Remote != "" && x.Artifact == "" && len(x.Pulled) == 0:
		fmt.Fprintf(a.out, "  registry    %s: nothing is pulled from it; a build queries it\n", x.Remote)
	}
}

func (a *app) printExplanation(x explanation) {
	fmt.Fprintf(a.out, "%s for %s\n  compiler    %s (identified by %d files)\n",
		partName(x.Module, x.Part), x.Target, x.Compiler, len(x.Toolchain))
	if x.NoCompiler != "" {
		fmt.Fprintf(a.out, "  unusable    %s\n", strings.ReplaceAll(x.NoCompiler, "\n", "\n              "))
	}
	built := "never, according to this cache"
	if x.LastBuilt != nil {
		built = fmt.Sprintf("%s (%s ago)", x.LastBuilt.Format(time.DateTime), formatAge(time.Since(*x.LastBuilt)))
	}
	fmt.Fprintf(a.out, "  last built  %s\n", built)
	a.printSource(x)
	if x.Whole {
		fmt.Fprintln(a.out, "  whole       the cache has the whole module, which calls use instead of this part")
	}
	if a.verbose {
		for _, p := range x.Toolchain {
			fmt.Fprintf(a.out, "    %s  %s  %s\n", cache.Key(p.Digest).Short(), p.Name, p.Path)
		}
	}
	a.printChanges("    files of the compiler that differ from those of the last build:", x.Replaced)
	for _, u := range x.Units {
		a.printUnit(u, x.NoCompiler == "")
	}
	a.printLink(x.Link, x.NoCompiler == "")
	a.printTuning(x.Tuning)
}

// printTuning prints the launch parameters that are kept for a library.
func (a *app) printTuning(list []tuning.Entry) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\n  launch parameters, used with AITER_TUNE=1")
	for _, e := range list {
		fmt.Fprintf(a.out, "    %s: %s\n      %.1f us with the plan, %.1f us with the choice; %s, driver %s, %s\n      %s\n", e.Op, e.Words(),
			e.PlanUS, e.TunedUS, e.Device, cmp.Or(e.Driver, "unknown"), e.Time.Format(time.DateTime), e.Shapes)
	}
}

// formatDecision describes the decision of a build about a unit or a link. work is
// "compiled" or "linked"; compiler is false on a machine without one.
func formatDecision(status jit.Status, reason, work string, compiler bool) string {
	switch {
	case status == jit.Hit:
		return "hit: " + reason
	case !compiler:
		return "cannot be used: " + reason
	}
	return "would be " + work + ": " + reason
}

func (a *app) printLink(l jit.LinkExplanation, compiler bool) {
	fmt.Fprintf(a.out, "\n  link\n    %s\n    key %s\n",
		formatDecision(l.Status, l.Reason, "linked", compiler), cmp.Or(l.Key.Short(), "(unknown until all units are built)"))
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
		fmt.Fprintf(a.out, "      %s\n        before  %s\n        now     %s\n",
			c.Label, cmp.Or(c.Before, "(absent)"), cmp.Or(c.After, "(absent)"))
	}
}

func (a *app) printUnit(u jit.UnitExplanation, compiler bool) {
	fmt.Fprintf(a.out, "\n  %s\n    %s\n    key %s\n",
		unitTarget(u.Unit(), u.Values), formatDecision(u.Status, u.Reason, "compiled", compiler), u.Key.Short())
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
