package aitercmd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/schema"
)

func newDescribe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "describe OP|MODULE",
		Short:             "Show an operator's arguments or a module's sources and flags",
		Example:           "  aiterctl describe causal_conv1d_fwd\n  aiterctl describe module_causal_conv1d --json",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.allNames,
		RunE:              func(_ *cobra.Command, args []string) error { return a.describe(args[0]) },
	}
}

func (a *app) describe(name string) error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	m, op, errOp := cfg.Op(name)
	if errOp == nil {
		return a.describeOp(m, op)
	}
	m, errModule := cfg.Module(name)
	if errModule == nil {
		return a.describeModule(m)
	}
	return unknownName(name, errOp, errModule)
}

// unknownName returns the error for a name that is neither an operator nor a module: errOp or errModule, whichever kind of
// name it resembles more.
func unknownName(name string, errOp, errModule error) error {
	var op *opconfig.UnknownOpError
	var module *opconfig.UnknownModuleError
	both := errors.As(errModule, &module) && errors.As(errOp, &op)
	if strings.HasPrefix(name, "module") || both && len(op.Nearest) == 0 && len(module.Nearest) > 0 {
		return errModule
	}
	return errOp
}

// nearestName returns errOp if an unknown name resembles the name of an operator and of no module, else errModule.
func nearestName(errOp, errModule error) error {
	var op *opconfig.UnknownOpError
	var module *opconfig.UnknownModuleError
	if errors.As(errOp, &op) && errors.As(errModule, &module) && len(module.Nearest) == 0 && len(op.Nearest) > 0 {
		return errOp
	}
	return errModule
}

// opDescription is the output of describe for an operator.
type opDescription struct {
	Kind    string           `json:"kind"` // "op"
	Name    string           `json:"name"`
	Module  string           `json:"module"`
	Doc     string           `json:"doc"`
	Schema  string           `json:"schema"`
	Python  string           `json:"python"` // what AIter's Python does besides, "nothing", or "" for an operator of another origin
	Args    []argDescription `json:"args"`
	Targets []string         `json:"targets"`
	Axes    []axisItem       `json:"axes"` // the axes that select its code
	Params  []paramItem      `json:"launch_params"`
	Defined string           `json:"defined"` // file:line:column
}

// paramItem is a launch parameter.
type paramItem struct {
	Name    string   `json:"name"`
	Values  []int64  `json:"values"`
	Targets []string `json:"targets"` // vendors or patterns; none: all
	Doc     string   `json:"doc"`
}

// String returns the values, the targets and the text: "16, 32, on cpu: elements of a part".
func (p paramItem) String() string {
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Values), "[]"), " ", ", ")
	if len(p.Targets) > 0 {
		text += ", on " + strings.Join(p.Targets, ", ")
	}
	if p.Doc != "" {
		text += ": " + p.Doc
	}
	return text
}

type argDescription struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Default *string `json:"default"` // null: the argument is required
	Written bool    `json:"written"` // the operator writes the argument
	Shape   string  `json:"shape"`   // "(B, D, L)", "" if it is not declared
	// DTypes are the allowed element types, and the names of arguments whose element type is allowed. It is empty if
	// the configuration does not declare them.
	DTypes  []string `json:"dtypes"`
	Strides string   `json:"strides"` // "any" or "row-major"; "" for an argument that is not a tensor
	Doc     string   `json:"doc"`
}

func (a *app) describeOp(m *opconfig.Module, op *opconfig.Op) error {
	d := opDescription{
		Kind: "op", Name: op.Name, Module: m.Name, Doc: op.Doc, Schema: op.Schema.String(), Python: op.Python,
		Args: []argDescription{}, Targets: supportedTargets(m), Axes: []axisItem{}, Params: []paramItem{}, Defined: op.Pos.String(),
	}
	for i, axis := range newAxisItems(m) {
		if m.Axes[i].Of(op) {
			axis.shape = op.Args[axis.Argument].Shape
			d.Axes = append(d.Axes, axis)
		}
	}
	for _, arg := range op.Schema.Args {
		d.Args = append(d.Args, newArgDescription(arg, op.Args[arg.Name]))
	}
	longest := 0
	for _, p := range op.Tune {
		d.Params = append(d.Params, paramItem{p.Name, p.Values, nonNil(p.Targets), p.Doc})
		longest = max(longest, len(p.Name))
	}
	if a.json {
		return a.writeJSON(d)
	}
	fmt.Fprintf(a.out, "%s: %s\nmodule %s, for %s, defined at %s\n\n%s\n\n",
		d.Name, d.Doc, d.Module, strings.Join(d.Targets, ", "), d.Defined, d.Schema)
	if d.Python != "" {
		text := d.pythonText()
		if a.width > 0 {
			text = strings.Join(fill(text, a.width), "\n")
		}
		fmt.Fprintf(a.out, "%s\n\n", text)
	}
	for _, x := range d.Axes {
		fmt.Fprintf(a.out, "axis %-6s %s\n", x.Name, x)
	}
	for _, p := range d.Params {
		fmt.Fprintf(a.out, "launch parameter %-*s  %s\n", longest, p.Name, p)
	}
	if len(d.Axes)+len(d.Params) > 0 {
		fmt.Fprintln(a.out)
	}
	return a.table(wrapLast(argRows(d.Args), a.width))
}

// pythonText says what a caller of AIter's Python has besides the operator.
func (d opDescription) pythonText() string {
	if d.Python == "nothing" {
		return "Entry point of AIter; its Python does nothing else."
	}
	return "Entry point of AIter; its Python also " + d.Python + "."
}

// wrapLast breaks the cells of the last column into several rows, so that a line has at most width characters. It changes
// nothing if width is 0 or leaves too little for the column.
func wrapLast(rows [][]string, width int) [][]string {
	const gap, least = 2, 20
	last := len(rows[0]) - 1
	for i := range last {
		widest := 0
		for _, row := range rows {
			widest = max(widest, len(row[i]))
		}
		width -= widest + gap
	}
	if width < least {
		return rows
	}
	var wrapped [][]string
	for _, row := range rows {
		for _, line := range fill(row[last], width) {
			wrapped = append(wrapped, append(slices.Clone(row[:last]), line))
			row = make([]string, last+1)
		}
	}
	return wrapped
}

func newArgDescription(arg schema.Arg, decl opconfig.Argument) argDescription {
	d := argDescription{
		Name: arg.Name, Type: arg.Type.String(), Written: arg.Type.Mutable,
		Shape: decl.Shape.String(), DTypes: nonNil(decl.DTypes), Doc: decl.Doc,
	}
	if arg.Type.Kind == schema.Tensor {
		d.Strides = "any"
	}
	if decl.RowMajor {
		d.Strides = "row-major"
	}
	if arg.Default != nil {
		text := arg.Default.String()
		d.Default = &text
	}
	return d
}

// argRows returns a table of arguments. It leaves out shape, element type, strides and description if the configuration
// declares none of them.
func argRows(list []argDescription) [][]string {
	rows := [][]string{{"ARGUMENT", "TYPE", "DEFAULT", "ACCESS", "SHAPE", "ELEMENT TYPE", "STRIDES", "DESCRIPTION"}}
	for _, d := range list {
		preset, access := "required", "read"
		if d.Default != nil {
			preset = *d.Default
		}
		if d.Written {
			access = "written"
		}
		rows = append(rows, []string{d.Name, d.Type, preset, access, d.Shape, d.typeText(list), d.Strides, d.Doc})
	}
	if !slices.ContainsFunc(list, func(d argDescription) bool { return d.Shape != "" || len(d.DTypes) > 0 || d.Doc != "" }) {
		return columns(rows, 0, 1, 2, 3)
	}
	return rows
}

// columns returns the columns of a table whose indices are in keep.
func columns(rows [][]string, keep ...int) [][]string {
	var list [][]string
	for _, row := range rows {
		var some []string
		for _, i := range keep {
			some = append(some, row[i])
		}
		list = append(list, some)
	}
	return list
}

// typeText lists the element types: "float32, or as x".
func (d argDescription) typeText(all []argDescription) string {
	var types, like []string
	for _, word := range d.DTypes {
		if slices.ContainsFunc(all, func(other argDescription) bool { return other.Name == word }) {
			like = append(like, word)
		} else {
			types = append(types, word)
		}
	}
	text := strings.Join(types, "|")
	if len(like) == 0 {
		return text
	}
	if text != "" {
		text += ", or "
	}
	return text + "as " + strings.Join(like, " or ")
}

// moduleDescription is the output of describe for a module.
type moduleDescription struct {
	Kind string `json:"kind"` // "module"
	moduleItem
	Include   []string            `json:"include"`
	Files     []sourceDescription `json:"source"`
	Flags     map[string][]string `json:"flags"`      // by vendor or pattern
	LinkFlags map[string][]string `json:"link_flags"` // by vendor or pattern
	Defined   string              `json:"defined"`
}

type sourceDescription struct {
	Path  string              `json:"path"`
	Files []string            `json:"files"`
	Ops   []string            `json:"ops"`  // the operators in the source
	Axes  []string            `json:"axes"` // the axes for whose values it is compiled separately
	When  string              `json:"when"`
	Flags map[string][]string `json:"flags"`

	words string // When, with ranges in words
}

func (a *app) describeModule(m *opconfig.Module) error {
	d := moduleDescription{
		Kind: "module", moduleItem: newModuleItem(m), Include: nonNil(m.Include), Files: []sourceDescription{},
		Flags: flagTable(m.Flags), LinkFlags: flagTable(m.LinkFlags), Defined: m.Pos.String(),
	}
	for _, s := range m.Sources {
		d.Files = append(d.Files, sourceDescription{s.Path, nonNil(s.Files), nonNil(m.OpsIn(s)), m.AxesOf(s),
			formatCondition(s.When, strings.Clone), flagTable(s.Flags), formatCondition(s.When, opconfig.ValueWords)})
	}
	if a.json {
		return a.writeJSON(d)
	}
	return a.printModule(d)
}

func (a *app) printModule(d moduleDescription) error {
	fmt.Fprintf(a.out, "%s: %s\nfor %s, defined at %s\n\n", d.Name, d.Doc, strings.Join(d.Targets, ", "), d.Defined)
	rows := [][]string{{"SOURCE", "WHEN", "OPERATORS", "AXES", "FLAGS"}}
	for _, s := range d.Files {
		ops, axes, flags := strings.Join(s.Ops, ","), strings.Join(s.Axes, ","), strings.Join(flagLines(s.Flags), "; ")
		rows = append(rows, []string{s.Path, cmp.Or(s.words, "always"), cmp.Or(ops, "-"), cmp.Or(axes, "-"), cmp.Or(flags, "-")})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\ninclude     %s\n", strings.Join(d.Include, " "))
	for _, l := range flagLines(d.Flags) {
		fmt.Fprintf(a.out, "flags       %s\n", l)
	}
	for _, l := range flagLines(d.LinkFlags) {
		fmt.Fprintf(a.out, "link flags  %s\n", l)
	}
	for _, x := range d.Axes {
		fmt.Fprintf(a.out, "axis %-6s %s\n", x.Name, x)
	}
	_, err := fmt.Fprintf(a.out, "operators   %s\n", cmp.Or(strings.Join(d.Ops, ", "), "none"))
	return err
}

// flagTable returns a flag set by vendor (common, hip, cuda, cpu) and pattern.
func flagTable(f opconfig.FlagSet) map[string][]string {
	t := map[string][]string{}
	for name, flags := range map[string][]string{"common": f.Common, "hip": f.HIP, "cuda": f.CUDA, "cpu": f.CPU} {
		if len(flags) > 0 {
			t[name] = flags
		}
	}
	for pattern, flags := range f.Arch {
		t[pattern] = flags
	}
	return t
}

// flagLines returns a line for each entry of a flag table, sorted.
func flagLines(t map[string][]string) []string {
	var lines []string
	for name, flags := range t {
		lines = append(lines, name+": "+strings.Join(flags, " "))
	}
	slices.Sort(lines)
	return lines
}

// formatCondition describes the condition of a source, "" for none. text formats a value of an axis.
func formatCondition(w opconfig.When, text func(string) string) string {
	var parts []string
	if len(w.Vendor) > 0 {
		parts = append(parts, strings.Join(w.Vendor, " or "))
	}
	if len(w.Arch) > 0 {
		parts = append(parts, strings.Join(w.Arch, " or "))
	}
	if w.Toolchain != "" {
		parts = append(parts, "toolchain "+w.Toolchain)
	}
	for _, axis := range slices.Sorted(maps.Keys(w.Axis)) {
		parts = append(parts, axis+" "+joinWords(w.Axis[axis], " or ", text))
	}
	return strings.Join(parts, ", ")
}
