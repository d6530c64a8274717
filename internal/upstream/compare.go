package upstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/schema"
)

// Difference is a way in which a checkout differs from what the declarations use.
type Difference struct {
	Module   string   // of AIter
	Declared []string // modules of this project that use it
	Function string   // "" if the difference is of the module
	Msg      string
}

func (d Difference) String() string {
	s := d.Module
	if len(d.Declared) > 0 {
		s += " (" + strings.Join(d.Declared, ", ") + ")"
	}
	if d.Function != "" {
		s += ": " + d.Function
	}
	return s + ": " + d.Msg
}

// Compare returns the differences of got, the interface of a checkout, from want, the interface of the declarations.
func Compare(want, got *Interface) []Difference {
	var list []Difference
	for _, w := range want.Modules {
		add := func(format string, args ...any) {
			list = append(list, Difference{w.Name, w.Declared, "", fmt.Sprintf(format, args...)})
		}
		i := slices.IndexFunc(got.Modules, func(m ModuleInterface) bool { return m.Name == w.Name })
		if i < 0 {
			add("the checkout has no such module")
			continue
		}
		g := got.Modules[i]
		compareLists("source", w.Sources, g.Sources, add)
		compareLists("flag", w.Flags, g.Flags, add)
		compareLists("flag for sources", patterns(w.SourceFlags), patterns(g.SourceFlags), add)
		compareLists("declared module", w.Declared, g.Declared, add)
		for _, f := range w.Functions {
			at := func(format string, args ...any) {
				list = append(list, Difference{w.Name, w.Declared, f.Name, fmt.Sprintf(format, args...)})
			}
			j := slices.IndexFunc(g.Functions, func(x FunctionInterface) bool { return x.Name == f.Name })
			if j < 0 {
				at("the checkout has no such function")
				continue
			}
			compareFunctions(f, g.Functions[j], at)
		}
		for _, f := range g.Functions {
			if !slices.ContainsFunc(w.Functions, func(x FunctionInterface) bool { return x.Name == f.Name }) {
				list = append(list, Difference{w.Name, w.Declared, f.Name,
					"the adapters use the function, but " + InterfaceFile + " does not have it"})
			}
		}
	}
	for _, g := range got.Modules {
		if !slices.ContainsFunc(want.Modules, func(m ModuleInterface) bool { return m.Name == g.Name }) {
			list = append(list, Difference{g.Name, g.Declared, "", "declared modules use the module, but " + InterfaceFile + " does not have it"})
		}
	}
	return list
}

// patterns returns flags for sources as texts: "*.cu: -O3".
func patterns(list []SourceFlags) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.Pattern+": "+strings.Join(f.Flags, " "))
	}
	return out
}

// compareLists reports added and removed elements, and another order.
func compareLists(what string, want, got []string, add func(string, ...any)) {
	same := true
	for _, x := range want {
		if !slices.Contains(got, x) {
			add("%s removed: %s", what, x)
			same = false
		}
	}
	for _, x := range got {
		if !slices.Contains(want, x) {
			add("%s added: %s", what, x)
			same = false
		}
	}
	if same && !slices.Equal(want, got) {
		add("%ss in another order: %s", what, strings.Join(got, " "))
	}
}

// compareFunctions reports the changes of a signature: of the ABI, the result and each argument.
func compareFunctions(want, got FunctionInterface, add func(string, ...any)) {
	if want == got {
		return
	}
	if want.ABI != got.ABI {
		add("called with %s, not with %s", abiWords(got.ABI), abiWords(want.ABI))
	}
	w, g := readSignature(want), readSignature(got)
	if w.result != g.result {
		add("the result changed from %s to %s", w.result, g.result)
	}
	if len(w.args) != len(g.args) {
		for i, a := range w.args {
			if g.find(a.name) < 0 {
				add("%s: removed (%s)", numbered(i, a.name), a.types)
			}
		}
		for i, a := range g.args {
			if w.find(a.name) < 0 {
				add("%s: added (%s)", numbered(i, a.name), a.types)
			}
		}
	}
	for i, a := range w.args {
		j := g.find(a.name)
		if j < 0 && len(w.args) == len(g.args) {
			j = i
			add("%s: the name changed to %s", numbered(i, a.name), g.args[i].name)
		}
		if j < 0 {
			continue
		}
		b := g.args[j]
		if len(w.args) == len(g.args) && i != j {
			add("%s: the position changed to %d", numbered(i, a.name), j+1)
		}
		if a.types != b.types {
			add("%s: the type changed from %s to %s", numbered(i, a.name), a.types, b.types)
		}
		if a.preset != b.preset {
			add("%s: the default changed from %s to %s", numbered(i, a.name), cmp.Or(a.preset, "none"), cmp.Or(b.preset, "none"))
		}
	}
}

func abiWords(a ABI) string {
	return map[ABI]string{CTypes: "ctypes", Tensors: "aiter_tensor_t", Torch: "PyTorch's tensors"}[a]
}

// signature is the signature of a function, split into result and arguments.
type signature struct {
	result string // C++ type
	args   []signatureArg
}

// signatureArg is an argument: its name, its C++ type, and its default in the schema, "" for none.
type signatureArg struct{ name, types, preset string }

// find returns the index of the argument with that name, -1 if there is none.
func (s signature) find(name string) int {
	return slices.IndexFunc(s.args, func(a signatureArg) bool { return a.name == name })
}

// readSignature joins the C++ types of a function with the names and defaults in its schema.
func readSignature(f FunctionInterface) signature {
	result, rest, _ := strings.Cut(f.Types, " (")
	out := signature{result: result}
	s, _ := schema.Parse(f.Schema) // the empty schema has no arguments
	for i, t := range splitArgs(strings.TrimSuffix(rest, ")")) {
		a := signatureArg{name: fmt.Sprintf("a%d", i+1), types: t}
		if i < len(s.Args) {
			a.name = s.Args[i].Name
			if v := s.Args[i].Default; v != nil {
				a.preset = v.String()
			}
		}
		out.args = append(out.args, a)
	}
	return out
}

// CompareDeclared compares the schemas of declared operators with those of AIter's functions of the same name, and returns the
// differences. A declared schema may also mark written tensors, allow None for a tensor, and add defaults. Operators with other names are
// not compared, because their adapters have signatures of their own.
func CompareDeclared(d Declared, i *Interface) []Difference {
	var list []Difference
	for _, m := range i.Modules {
		for _, f := range m.Functions {
			s, err := schema.Parse(f.Schema)
			if _, op, opErr := d.Config.Op("aiter_" + f.Name); err == nil && opErr == nil && f.ABI != CTypes {
				for _, msg := range compareSchemas(op.Schema, s) {
					list = append(list, Difference{m.Name, m.Declared, f.Name, "operator " + op.Name + ": " + msg})
				}
			}
		}
	}
	return list
}

func compareSchemas(op, f schema.Schema) (list []string) {
	if len(op.Args) != len(f.Args) {
		return []string{fmt.Sprintf("%d arguments, AIter's function has %d", len(op.Args), len(f.Args))}
	}
	for i, a := range op.Args {
		b := f.Args[i]
		if a.Name != b.Name {
			list = append(list, fmt.Sprintf("%s: AIter's name is %s", numbered(i, a.Name), b.Name))
		}
		if a.Type.Kind != b.Type.Kind || b.Type.Optional && !a.Type.Optional {
			list = append(list, fmt.Sprintf("%s: %s, in AIter %s", numbered(i, a.Name), a.Type, b.Type))
		}
		if b.Default != nil && (a.Default == nil || a.Default.String() != b.Default.String()) {
			list = append(list, fmt.Sprintf("%s: AIter's default is %s", numbered(i, a.Name), b.Default))
		}
	}
	if schema.Results(op.Returns) != schema.Results(f.Returns) {
		list = append(list, fmt.Sprintf("returns %s, in AIter %s", schema.Results(op.Returns), schema.Results(f.Returns)))
	}
	return list
}

// Check returns the differences of a checkout from the interface of the declarations, and the modules that it compared: those of
// names, or all that declared modules use. The error is an *UnknownModuleError, or the context's.
func (c *Checkout) Check(ctx context.Context, d Declared, cc Compiler, want *Interface, names []string) ([]Difference, []string, error) {
	for _, name := range names {
		if !slices.ContainsFunc(want.Modules, func(m ModuleInterface) bool { return m.Name == name }) {
			return nil, nil, &UnknownModuleError{Name: name}
		}
	}
	chosen := &Interface{Commit: want.Commit}
	for _, m := range want.Modules {
		if len(names) == 0 || slices.Contains(names, m.Name) {
			chosen.Modules = append(chosen.Modules, m)
		}
	}
	var compared []string
	var differences []Difference
	got := &Interface{Commit: c.Commit}
	for _, s := range c.Status(d) {
		i := slices.IndexFunc(chosen.Modules, func(m ModuleInterface) bool { return m.Name == s.Name })
		if i < 0 && (len(names) > 0 || s.State != In) {
			continue
		}
		compared = append(compared, s.Name)
		for _, file := range s.Missing {
			differences = append(differences, Difference{s.Name, s.Declared, "", "a source is missing: " + file})
		}
		m, err := c.importModule(ctx, d, cc, s)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err != nil {
			differences = append(differences, Difference{s.Name, s.Declared, "", err.Error()})
			if i >= 0 {
				chosen.Modules = slices.Delete(chosen.Modules, i, i+1)
			}
			continue
		}
		got.Modules = append(got.Modules, m)
	}
	differences = append(differences, Compare(chosen, got)...)
	return append(differences, CompareDeclared(d, got)...), compared, nil
}
