package aitercmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/jit/target"
)

const listLong = `List the modules of the configuration (the default), its operators, the known targets,
or the kernel cache and the read-only caches.`

func newList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list [modules|ops|targets|caches]",
		Short:   "List modules, operators, targets or caches",
		Long:    listLong,
		Example: "  aiterctl list ops\n  aiterctl list targets --json\n  aiterctl list caches",
		Args:    args(cobra.MaximumNArgs(1)),
		ValidArgs: []cobra.Completion{
			"modules", "ops", "targets", "caches",
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.list(cmd.Context(), strings.Join(args, ""))
		},
	}
}

// list runs the command list for one kind of things, modules for "".
func (a *app) list(ctx context.Context, kind string) error {
	switch kind {
	case "", "modules":
		return a.listModules()
	case "ops":
		return a.listOps()
	case "targets":
		return a.listTargets(ctx)
	case "caches":
		return a.listCaches()
	}
	return usagef("list %q: expected modules, ops, targets or caches", kind)
}

// moduleItem is a module in a list.
type moduleItem struct {
	Name    string     `json:"name"`
	Doc     string     `json:"doc"`
	Targets []string   `json:"targets"`
	Sources []string   `json:"sources"`
	Ops     []string   `json:"ops"`
	Axes    []axisItem `json:"axes"`
}

// axisItem is an axis of a module.
type axisItem struct {
	Name      string   `json:"name"`
	Argument  string   `json:"argument"`  // its element type, size or layout selects the value
	Dimension *int     `json:"dimension"` // of the argument; its size selects the value; null: another property does
	Adjacent  []int    `json:"adjacent"`  // dimensions of the argument, one for each layout; null: another property selects the value
	Values    []string `json:"values"`
	Define    string   `json:"define"`
	Targets   []string `json:"targets"` // that build the values separately

	shape schema.Shape // declared for the argument; zero if it is not known
}

func (x axisItem) String() string {
	property, values := "element type", joinWords(x.Values, ", ", opconfig.ValueWords)
	switch {
	case x.Dimension != nil:
		property = fmt.Sprintf("size of dimension %d", *x.Dimension)
		if letter := x.shape.Letter(*x.Dimension); letter != "" {
			property = fmt.Sprintf("%s, the size of dimension %d", letter, *x.Dimension)
		}
	case x.Adjacent != nil:
		property, values = "memory layout", x.layouts()
	}
	return fmt.Sprintf("%s of %s: %s; built separately for %s", property, x.Argument, values, strings.Join(x.Targets, ", "))
}

// layouts returns the layouts, each with its adjacent dimension: "channel_first (L adjacent), channel_last (D adjacent)".
func (x axisItem) layouts() string {
	list := make([]string, len(x.Values))
	for i, v := range x.Values {
		list[i] = fmt.Sprintf("%s (%s adjacent)", v, cmp.Or(x.shape.Letter(x.Adjacent[i]), fmt.Sprintf("dimension %d", x.Adjacent[i])))
	}
	return strings.Join(list, ", ")
}

// joinWords joins the texts of words.
func joinWords(words []string, sep string, text func(string) string) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = text(w)
	}
	return strings.Join(texts, sep)
}

func newAxisItems(m *opconfig.Module) []axisItem {
	items := []axisItem{}
	for _, a := range m.Axes {
		x := axisItem{Name: a.Name, Argument: a.Argument, Adjacent: a.Adjacent, Values: a.Values, Define: a.Define, Targets: a.Targets}
		if a.BySize() {
			x.Dimension = &a.Dimension
		}
		if len(x.Targets) == 0 {
			x.Targets = supportedTargets(m)
		}
		items = append(items, x)
	}
	return items
}

func (a *app) listModules() error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	items := []moduleItem{}
	rows := [][]string{{"MODULE", "TARGETS", "OPERATORS", "DESCRIPTION"}}
	for _, m := range cfg.Modules {
		x := newModuleItem(m)
		items = append(items, x)
		rows = append(rows, []string{x.Name, strings.Join(x.Targets, ","), cmp.Or(strings.Join(x.Ops, ","), "-"), x.Doc})
	}
	if a.json {
		return a.writeJSON(map[string]any{"modules": items})
	}
	return a.table(rows)
}

func newModuleItem(m *opconfig.Module) moduleItem {
	x := moduleItem{Name: m.Name, Doc: m.Doc, Targets: supportedTargets(m), Sources: []string{}, Ops: []string{}, Axes: newAxisItems(m)}
	for _, s := range m.Sources {
		for _, f := range s.Files {
			if !slices.Contains(x.Sources, f) {
				x.Sources = append(x.Sources, f)
			}
		}
	}
	for _, op := range m.Ops {
		x.Ops = append(x.Ops, op.Name)
	}
	return x
}

// supportedTargets returns the targets that a module lists, else the vendors that it
// has sources for.
func supportedTargets(m *opconfig.Module) []string {
	if len(m.Targets) > 0 {
		return m.Targets
	}
	list := []string{}
	for _, name := range target.Known() {
		t, err := target.Parse(name)
		if v := string(t.Vendor()); err == nil && m.Supports(t) && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// opItem is an operator in a list.
type opItem struct {
	Name   string `json:"name"`
	Module string `json:"module"`
	Schema string `json:"schema"`
	Doc    string `json:"doc"`
}

func (a *app) listOps() error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	items := []opItem{}
	for _, m := range cfg.Modules {
		for _, op := range m.Ops {
			items = append(items, opItem{op.Name, m.Name, op.Schema.String(), op.Doc})
		}
	}
	slices.SortFunc(items, func(a, b opItem) int { return strings.Compare(a.Name, b.Name) })
	if a.json {
		return a.writeJSON(map[string]any{"ops": items})
	}
	rows := [][]string{{"OPERATOR", "MODULE", "DESCRIPTION"}}
	for _, x := range items {
		rows = append(rows, []string{x.Name, x.Module, x.Doc})
	}
	return a.table(rows)
}

// targetItem is a target in a list.
type targetItem struct {
	Name   string        `json:"name"`
	Vendor target.Vendor `json:"vendor"`
	Native bool          `json:"native"` // this machine runs it
}

func (a *app) listTargets(ctx context.Context) error {
	devs, err := a.openDevices()
	if err != nil {
		return err
	}
	defer devs.Close()
	own, err := devs.Native(ctx)
	if err != nil {
		return err
	}
	items := targetItems(own)
	if a.json {
		return a.writeJSON(map[string]any{"targets": items})
	}
	rows := [][]string{{"TARGET", "VENDOR", "THIS MACHINE"}}
	for _, x := range items {
		runs := "-"
		if x.Native {
			runs = "yes"
		}
		rows = append(rows, []string{x.Name, string(x.Vendor), runs})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "\nnative is %s on this machine\n", join(own))
	return err
}

// targetItems returns the known targets and the other targets of this machine. own are
// the targets of this machine.
func targetItems(own []target.Target) []targetItem {
	items := []targetItem{}
	add := func(t target.Target) {
		runs := t.Vendor() == target.CPU || slices.ContainsFunc(own, t.Runs)
		items = append(items, targetItem{t.String(), t.Vendor(), runs})
	}
	for _, name := range target.Known() {
		if t, err := target.Parse(name); err == nil {
			add(t)
		}
	}
	for _, t := range own {
		if !slices.Contains(target.Known(), t.Arch()) {
			add(t)
		}
	}
	return items
}
