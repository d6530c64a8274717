package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/aiter-go/aiter/jit/schema"
)

// InterfaceFile is the name of the file in the declarations' tree that has the [Interface] for which they were written.
const InterfaceFile = "interface.toml"

// Interface is the part of a checkout that declarations and adapters use.
type Interface struct {
	Commit  string            `json:"commit"` // "" if unknown
	Modules []ModuleInterface `json:"modules"`
}

// ModuleInterface is the part of a module of AIter that declarations and adapters use.
type ModuleInterface struct {
	Name        string              `json:"name"`
	Declared    []string            `json:"declared"` // the modules of this project that use it
	Sources     []string            `json:"sources"`
	Flags       []string            `json:"flags"` // for HIP; a flag that depends on the machine is a Python expression in braces
	SourceFlags []SourceFlags       `json:"source_flags"`
	Functions   []FunctionInterface `json:"functions"`
}

// FunctionInterface is the signature of a function.
type FunctionInterface struct {
	Name   string `json:"name"`
	ABI    ABI    `json:"abi"`
	Schema string `json:"schema"` // without marks of written tensors; "" if a type has no equivalent in schemas
	Types  string `json:"types"`  // in C++: "void (aiter_tensor_t &, float)"
}

// UnknownModuleError reports a module that a checkout does not have, or that cannot be built.
type UnknownModuleError struct {
	Name    string
	Reasons []Reason // why it cannot be built; none if the checkout does not have it
}

func (e *UnknownModuleError) Error() string {
	if len(e.Reasons) == 0 {
		return fmt.Sprintf("the checkout has no module %s; aiterctl aiter modules lists its modules", e.Name)
	}
	return fmt.Sprintf("%s cannot be built: %s", e.Name, e.Reasons[0])
}

// Import reads the interface of the named modules of AIter; without names, of all modules that declared modules use. It lists the
// functions that the adapters mention, and all functions of a module that no adapter mentions. The error joins a *BindingsError or an
// *UnknownModuleError for each module that cannot be read.
func (c *Checkout) Import(ctx context.Context, d Declared, cc Compiler, names []string) (*Interface, error) {
	list := &Interface{Commit: c.Commit}
	var errs []error
	for _, name := range names {
		if c.Module(name) == nil {
			errs = append(errs, &UnknownModuleError{Name: name})
		}
	}
	for _, s := range c.Status(d) {
		if !slices.Contains(names, s.Name) && (len(names) > 0 || s.State != In) {
			continue
		}
		if s.State == Out {
			errs = append(errs, &UnknownModuleError{s.Name, s.Reasons})
			continue
		}
		m, err := c.importModule(ctx, d, cc, s)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			errs = append(errs, err)
			continue
		}
		list.Modules = append(list.Modules, m)
	}
	return list, errors.Join(errs...)
}

func (c *Checkout) importModule(ctx context.Context, d Declared, cc Compiler, s Status) (ModuleInterface, error) {
	m := ModuleInterface{Name: s.Name, Declared: s.Declared, Sources: s.Sources, SourceFlags: s.SourceFlags}
	for _, f := range s.Flags {
		text := f.Text
		if f.Unknown {
			text = "{" + text + "}"
		}
		m.Flags = append(m.Flags, text)
	}
	functions, err := c.functions(ctx, d, s.Module, cc)
	if err != nil {
		return m, err
	}
	words := map[string]bool{}
	for _, name := range s.Declared {
		declared, err := d.Config.Module(name)
		if err != nil {
			return m, err
		}
		for word := range c.adaptersOf(d, declared).words {
			words[word] = true
		}
	}
	used := func(f Function) bool { return words[f.Name] || words["aiter_"+f.Name] }
	all := !slices.ContainsFunc(functions, used)
	for _, f := range functions {
		if all || used(f) {
			m.Functions = append(m.Functions, f.toInterface())
		}
	}
	return m, nil
}

func (f Function) toInterface() FunctionInterface {
	x := FunctionInterface{Name: f.Name, ABI: f.ABI, Types: f.Types()}
	if s, err := f.Schema(); err == nil {
		x.Schema = s.String()
	}
	return x
}

// Format returns the interface as TOML.
func (i *Interface) Format() string {
	var b strings.Builder
	b.WriteString("# The sources, flags and functions of AIter that the declarations and adapters in this folder use. aiterctl aiter " +
		"import\n# writes this file; aiterctl aiter check compares a checkout with it.\n\n")
	fmt.Fprintf(&b, "commit = %s\n", quote(i.Commit))
	for _, m := range i.Modules {
		fmt.Fprintf(&b, "\n[module.%s]\ndeclared = %s\nsources = %s\nflags = %s\n",
			m.Name, quoteAll(m.Declared), quoteAll(m.Sources), quoteAll(m.Flags))
		if len(m.SourceFlags) > 0 {
			fmt.Fprintf(&b, "\n[module.%s.source_flags]\n", m.Name)
		}
		for _, f := range m.SourceFlags {
			fmt.Fprintf(&b, "%s = %s\n", quote(f.Pattern), quoteAll(f.Flags))
		}
		for _, f := range m.Functions {
			fmt.Fprintf(&b, "\n[[module.%s.function]]\nname = %s\nabi = %s\nschema = %s\ntypes = %s\n",
				m.Name, quote(f.Name), quote(string(f.ABI)), quote(f.Schema), quote(f.Types))
		}
	}
	return b.String()
}

// quote returns a basic string of TOML.
func quote(s string) string {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if !strings.ContainsAny(s, `'`) && strings.ContainsAny(s, `"\`) && !strings.ContainsFunc(s, control) {
		return "'" + s + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func quoteAll(list []string) string {
	var quoted []string
	for _, s := range list {
		quoted = append(quoted, quote(s))
	}
	if one := "[" + strings.Join(quoted, ", ") + "]"; len(one) < 110 {
		return one
	}
	return "[\n  " + strings.Join(quoted, ",\n  ") + ",\n]"
}

// ParseInterface reads the TOML that [Interface.Format] writes. The error names the key or the function that is wrong.
func ParseInterface(text string) (*Interface, error) {
	var file struct {
		Commit string
		Module map[string]struct {
			Declared, Sources, Flags []string
			SourceFlags              map[string][]string `toml:"source_flags"`
			Function                 []struct{ Name, ABI, Schema, Types string }
		}
	}
	meta, err := toml.Decode(text, &file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", InterfaceFile, err)
	}
	if keys := meta.Undecoded(); len(keys) > 0 {
		return nil, fmt.Errorf("%s: unknown key %s", InterfaceFile, keys[0])
	}
	i := &Interface{Commit: file.Commit}
	for _, key := range meta.Keys() {
		if len(key) != 2 || key[0] != "module" {
			continue
		}
		from := file.Module[key[1]]
		m := ModuleInterface{Name: key[1], Declared: from.Declared, Sources: from.Sources, Flags: from.Flags}
		for pattern, flags := range from.SourceFlags {
			m.SourceFlags = append(m.SourceFlags, SourceFlags{pattern, flags})
		}
		slices.SortFunc(m.SourceFlags, func(a, b SourceFlags) int { return strings.Compare(a.Pattern, b.Pattern) })
		for _, f := range from.Function {
			if _, err := schema.Parse(f.Schema); f.Schema != "" && err != nil {
				return nil, fmt.Errorf("%s: %s of %s: %w", InterfaceFile, f.Name, m.Name, err)
			}
			m.Functions = append(m.Functions, FunctionInterface{f.Name, ABI(f.ABI), f.Schema, f.Types})
		}
		i.Modules = append(i.Modules, m)
	}
	return i, nil
}

// numbered returns "argument 2, key".
func numbered(i int, name string) string { return "argument " + strconv.Itoa(i+1) + ", " + name }
