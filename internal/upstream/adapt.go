package upstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/jit/schema"
)

// Adapt writes adapters for modules of AIter that no declared module uses: the files of a source tree with opt_compiler.toml, by
// name. Each operator has the name of AIter's function with the prefix aiter_. The adapters add no checks to those of the function.
// The error joins a *BindingsError, an *UnknownModuleError or an *AdaptError for each module that cannot be adapted.
func (c *Checkout) Adapt(ctx context.Context, d Declared, cc Compiler, names []string) (map[string]string, error) {
	files := map[string]string{}
	var toml strings.Builder
	head, err := d.defaults()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&toml, "# Operators of AMD's AIter%s, written by aiterctl aiter import --tree. They need AITER_CHECKOUT. Check the "+
		"schemas:\n# they mark a tensor as written if its C++ type is a reference that is not const, or if its name begins with out.\n\n"+
		"%s", commitWords(c.Commit), head)
	var errs []error
	for _, name := range names {
		if c.Module(name) == nil {
			errs = append(errs, &UnknownModuleError{Name: name})
		}
	}
	for _, s := range c.Status(d) {
		switch {
		case !slices.Contains(names, s.Name):
			continue
		case s.State == Out:
			errs = append(errs, &UnknownModuleError{s.Name, s.Reasons})
			continue
		case s.State == In:
			errs = append(errs, &AdaptError{s.Name, "the program has operators of it: " + strings.Join(s.Declared, ", ")})
			continue
		}
		functions, err := c.functions(ctx, d, s.Module, cc)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := c.adapt(&toml, files, s.Module, functions); err != nil {
			errs = append(errs, err)
		}
	}
	for name := range standinFiles(d) {
		text, err := fs.ReadFile(d.Files, name)
		if err != nil {
			return nil, err
		}
		files[name] = string(text)
	}
	files["opt_compiler.toml"] = toml.String()
	return files, errors.Join(errs...)
}

// AdaptError reports a module for which Adapt writes no operators.
type AdaptError struct{ Module, Msg string }

func (e *AdaptError) Error() string { return e.Module + ": " + e.Msg }

func commitWords(commit string) string {
	if commit == "" {
		return ""
	}
	return " at commit " + commit
}

// defaults returns the section [defaults] of the declarations' configuration as text.
func (d Declared) defaults() (string, error) {
	text, err := fs.ReadFile(d.Files, d.Config.Files[0])
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(text), "[defaults]\n")
	before, _, more := strings.Cut(rest, "\n[module.")
	if !ok || !more {
		return "", fmt.Errorf("%s: expected [defaults] before the modules", d.Config.Files[0])
	}
	return "[defaults]\n" + before, nil
}

// standinFiles returns the names of the files in the include folders of the declarations' tree.
func standinFiles(d Declared) map[string]bool {
	found := map[string]bool{}
	for _, dir := range d.Standins().Include {
		_ = fs.WalkDir(d.Files, dir, func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				found[name] = true
			}
			return err
		})
	}
	return found
}

// adapt adds a module to the configuration, and its units to files.
func (c *Checkout) adapt(toml *strings.Builder, files map[string]string, m *Module, functions []Function) error {
	short := strings.ToLower(strings.TrimPrefix(m.Name, "module_"))
	unit, ops, omitted := c.exports(m, functions)
	if ops == "" {
		return &AdaptError{m.Name, "none of its functions can be adapted: " + strings.Join(omitted, "; ")}
	}
	fmt.Fprintf(toml, "\n[module.module_aiter_%s]\ndoc = %s\n", short, quote("AIter's "+m.Name))
	flags, unitFlags := []string{noTorchTypes}, []string(nil)
	for _, f := range m.Flags {
		if f.Unknown {
			fmt.Fprintf(toml, "# AIter's flag depends on the machine and is left out: %s\n", strings.Join(strings.Fields(f.Text), " "))
			continue
		}
		if f.Text == withoutHost {
			unitFlags = append(unitFlags, f.Text)
			continue
		}
		flags = append(flags, strings.Fields(f.Text)...)
	}
	fmt.Fprintf(toml, "flags.hip = %s\n", quoteAll(flags))
	if len(m.Include) > 0 {
		include := []string{"ck", "${AITER_CHECKOUT}/csrc/include", "${AITER_CHECKOUT}/csrc"}
		for _, dir := range m.Include {
			include = append(include, "${AITER_CHECKOUT}/"+dir)
		}
		fmt.Fprintf(toml, "include = %s\n", quoteAll(include))
	}
	source := func(name, text string, flags []string) {
		files[name] = text
		fmt.Fprintf(toml, "\n[[module.module_aiter_%s.source]]\npath = %s\n", short, quote(name))
		if len(flags) > 0 {
			fmt.Fprintf(toml, "flags = %s\n", quoteAll(flags))
		}
	}
	for _, file := range m.Sources {
		text, err := c.text(file)
		if err != nil {
			return err
		}
		ext := path.Ext(file)
		if ext != ".cu" && ext != ".cpp" || strings.Contains(text, "PYBIND11_MODULE") {
			continue
		}
		name := short + "/" + strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(file, "csrc/"), ext), "/", "_") + ".hip"
		head, own := "#include <aiter/upstream.h>\n\n", slices.Concat(unitFlags, m.flagsOf(file))
		if slices.Contains(own, withoutHost) {
			head = ""
		}
		source(name, fmt.Sprintf("%s#include %q\n", head, strings.TrimPrefix(file, "csrc/")), own)
	}
	source(short+"/operators.hip", unit, nil)
	for _, text := range omitted {
		fmt.Fprintf(toml, "\n# Left out: %s\n", text)
	}
	toml.WriteString(ops)
	return nil
}

// withoutHost is a flag with which AIter's sources and HIP's headers do not include the C++ library of the host. aiter/upstream.h
// needs that library, so a unit with this flag does not include aiter/upstream.h.
const withoutHost = "-D__HIPCC_RTC__"

// flagsOf returns the flags of the first pattern that the source's name matches, split into words.
func (m *Module) flagsOf(file string) (flags []string) {
	for _, f := range m.SourceFlags {
		if ok, _ := path.Match(f.Pattern, path.Base(file)); ok { // a bad pattern matches nothing
			for _, text := range f.Flags {
				flags = append(flags, strings.Fields(text)...)
			}
			return flags
		}
	}
	return nil
}

// exports returns the unit that exports the functions, and the operators' declarations as TOML. omitted are the functions that it
// leaves out, each with the reason.
func (c *Checkout) exports(m *Module, functions []Function) (unit, ops string, omitted []string) {
	var u, o strings.Builder
	u.WriteString("#include <aiter/upstream.h>\n\n")
	targets := map[string]string{}
	for _, file := range m.Sources {
		text, err := c.text(file)
		if err == nil && strings.Contains(text, "PYBIND11_MODULE") {
			maps.Copy(targets, c.bound(file, text))
			for _, inc := range includes(text, macrosOf(nil)) {
				if !inc.angle && inc.name != "rocm_ops.hpp" {
					fmt.Fprintf(&u, "#include %q\n", inc.name)
				}
			}
		}
	}
	short := strings.ToLower(strings.TrimPrefix(m.Name, "module_"))
	for _, f := range functions {
		s, err := f.Schema()
		if err == nil {
			err = f.adaptable(targets[f.Name])
		}
		if err != nil {
			omitted = append(omitted, f.Name+": "+err.Error())
			continue
		}
		alias := 'a'
		fmt.Fprintf(&u, "\nAITER_UPSTREAM(aiter_%s, %s", f.Name, targets[f.Name])
		for i, p := range f.Params {
			u.WriteString(",\n               " + spec(s.Args[i]))
			if s.Args[i].Type.Kind == schema.Tensor && (!strings.HasPrefix(p.Type, "const ") && strings.HasSuffix(p.Type, "&") ||
				strings.HasPrefix(p.Name, "out")) && alias <= 'z' {
				s.Args[i].Type.Alias, s.Args[i].Type.Mutable = string(alias), true
				alias++
			}
		}
		u.WriteString(")\n")
		fmt.Fprintf(&o, "\n[[module.module_aiter_%s.op]]\nname = %s\nschema = %s\n", short, quote("aiter_"+f.Name), quote(s.String()))
	}
	return u.String(), o.String(), omitted
}

// adaptable returns an error with the reason if AITER_UPSTREAM cannot export a function, else nil.
func (f Function) adaptable(target string) error {
	tensors := false
	for _, p := range f.Params {
		t, err := schemaType(p.Type, p.Enum)
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(p.Type, "*") || t.Kind != schema.Tensor && (t.Optional || !slices.Contains(
			[]schema.Kind{schema.Int, schema.Bool, schema.Float}, t.Kind)):
			return fmt.Errorf("argument %s: aiter/upstream.h does not convert %s", p.Name, p.Type)
		}
		tensors = tensors || t.Kind == schema.Tensor && !t.Optional
	}
	switch {
	case f.ABI != Tensors:
		return errors.New("an extern \"C\" function needs an adapter of its own")
	case f.Result != "void":
		return fmt.Errorf("it returns %s", f.Result)
	case !tensors:
		return errors.New("it has no required tensor, from which a call takes its device")
	case target == "":
		return errors.New("the bindings do not name a function for it")
	}
	return nil
}

// spec returns the description of an argument for AITER_UPSTREAM in C++, such as arg("x") or integer("mode", 0).
func spec(a schema.Arg) string {
	name := strconv.Quote(a.Name)
	if a.Default != nil {
		switch v := a.Default.Any().(type) {
		case nil:
			return "none(" + name + ")"
		case bool:
			return fmt.Sprintf("flag(%s, %t)", name, v)
		case int64:
			return fmt.Sprintf("integer(%s, %d)", name, v)
		case float64:
			return fmt.Sprintf("real(%s, %s)", name, strconv.FormatFloat(v, 'g', -1, 64))
		}
	}
	return "arg(" + name + ")"
}

// bound returns the C++ functions that a source with PYBIND11_MODULE binds, by their names in Python. It reads
// m.def("name", &function, ...) in the source, and in the macros that the source uses.
func (c *Checkout) bound(file, text string) map[string]string {
	found := map[string]string{}
	tokens := scanAll(newCScanner(text))
	words := map[string]bool{}
	for _, t := range tokens {
		words[t.text] = true
	}
	boundIn(tokens, found)
	for _, inc := range includes(text, macrosOf(nil)) {
		for _, dir := range []string{path.Dir(file), "csrc/include"} {
			header, err := c.text(path.Join(dir, inc.name))
			if err != nil {
				continue
			}
			for _, d := range directives(header) {
				if name := d.rest[:wordLen(d.rest)]; d.name == "define" && words[name] {
					boundIn(scanAll(newCScanner(" "+d.rest[len(name):])), found)
				}
			}
			break
		}
	}
	return found
}

// boundIn adds the functions of all def("name", &function in tokens to found.
func boundIn(tokens []token, found map[string]string) {
	for i := 0; i+4 < len(tokens); i++ {
		if t := tokens[i:]; t[0].text == "def" && t[1].text == "(" && t[2].kind == stringToken && t[3].text == "," && t[4].text == "&" {
			var target strings.Builder
			for _, part := range t[5:] {
				if part.kind != nameToken && part.text != "::" {
					break
				}
				target.WriteString(part.text)
			}
			found[strings.Trim(t[2].text, `"`)] = target.String()
		}
	}
}
