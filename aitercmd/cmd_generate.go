package aitercmd

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit/schema"
)

const generateGoLong = `Write a Go package that calls the operators of modules with named arguments: a struct
for the arguments of each operator, and a method. The comments are those of the
configuration. Equal configurations give equal text. --name gives an operator or an
argument another Go name, in all operators that have the argument.`

const generateGoExample = `  aiterctl generate go module_rms_norm --output rmsnorm/ops.go
  aiterctl generate go module_rms_norm --name rms_norm=Norm,eps=Epsilon
  aiterctl --root . generate go module_mine --package mine --output ops.go`

func newGenerate(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "generate", Short: "Generate code that calls operators"})
	cmd.AddCommand(newGenerateGo(a))
	return cmd
}

func newGenerateGo(a *app) *cobra.Command {
	var pkg, output string
	var named map[string]string
	cmd := &cobra.Command{
		Use: "go MODULE...", Short: "Write a Go package with named arguments", Long: generateGoLong, Example: generateGoExample,
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.moduleNames,
		RunE:              func(_ *cobra.Command, names []string) error { return a.generateGo(names, pkg, output, named) },
	}
	cmd.Flags().StringVar(&pkg, "package", "", "name of the package (default: the first module's, without module_ and underscores)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to a `FILE` (default: standard output)")
	cmd.Flags().StringToStringVar(&named, "name", nil, "Go names of operators and arguments: `eps=Epsilon`, ...")
	cmd.Flags().Lookup("name").DefValue = "" // the help shows no []
	return cmd
}

// generateGo writes a Go package for the operators of modules. named has Go names of operators and arguments, instead of
// those of goName.
func (a *app) generateGo(names []string, pkg, output string, named map[string]string) error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	if pkg == "" {
		pkg = strings.ReplaceAll(strings.TrimPrefix(names[0], "module_"), "_", "")
	}
	if !token.IsIdentifier(pkg) || token.IsExported(pkg) {
		return usagef("--package %q: expected a Go package name", pkg)
	}
	var ops []*opconfig.Op
	for _, name := range names {
		m, err := cfg.Module(name)
		if err != nil {
			return err
		}
		for i := range m.Ops {
			ops = append(ops, &m.Ops[i])
		}
	}
	if len(ops) == 0 {
		return usagef("%s has no operators", strings.Join(names, ", "))
	}
	g := goWriter{names: named}
	if err := g.check(ops); err != nil {
		return err
	}
	text, err := g.pkg(pkg, names, ops)
	if err != nil {
		return err
	}
	if output == "" {
		_, err := a.out.Write(text)
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}
	return writeFile(output, func(f *os.File) error {
		_, err := f.Write(text)
		return err
	})
}

// goWriter writes Go code.
type goWriter struct {
	b     bytes.Buffer
	names map[string]string // Go names of operators and arguments that --name gives
}

// name returns the exported Go name of an operator or an argument.
func (g *goWriter) name(of string) string { return cmp.Or(g.names[of], goName(of)) }

// check refuses a name that is not an exported Go name, a name for an unknown operator or argument, and one name for two
// operators or two arguments.
func (g *goWriter) check(ops []*opconfig.Op) error {
	unused := maps.Clone(g.names)
	methods := map[string]string{"Ops": "the type of all operators", "New": "the function that looks them up",
		"OnHost": "the method for tensors in host memory"}
	for _, op := range ops {
		delete(unused, op.Name)
		if other := methods[g.name(op.Name)]; other != "" {
			return usagef("%s and %s would both be %s in Go; give another name with --name %s=NAME", op.Name, other, g.name(op.Name), op.Name)
		}
		methods[g.name(op.Name)] = op.Name
		fields := map[string]string{}
		for _, arg := range op.Schema.Args {
			delete(unused, arg.Name)
			if other := fields[g.name(arg.Name)]; other != "" {
				return usagef("arguments %s and %s of %s would both be %s in Go; give another name with --name %s=NAME",
					arg.Name, other, op.Name, g.name(arg.Name), arg.Name)
			}
			fields[g.name(arg.Name)] = arg.Name
		}
	}
	for _, of := range slices.Sorted(maps.Keys(g.names)) {
		if _, missing := unused[of]; missing {
			return usagef("--name %s=%s: no operator or argument has the name %q", of, g.names[of], of)
		}
		if !token.IsIdentifier(g.names[of]) || !token.IsExported(g.names[of]) {
			return usagef("--name %s=%s: expected a Go name that begins with a capital letter", of, g.names[of])
		}
	}
	return nil
}

// pkg returns the text of a package.
func (g *goWriter) pkg(pkg string, modules []string, ops []*opconfig.Op) ([]byte, error) {
	b := &g.b
	fmt.Fprintf(b, "// Code generated by aiterctl generate go %s; DO NOT EDIT.\n\npackage %s\n\n", strings.Join(modules, " "), pkg)
	b.WriteString("import (\n\"context\"\n\n\"github.com/aiter-go/aiter/registry\"\n\"github.com/aiter-go/aiter/tensor\"\n)\n\n")
	b.WriteString("// Ops is the operators of one registry. It is safe for concurrent use.\ntype Ops struct {\n")
	for _, op := range ops {
		fmt.Fprintf(b, "%s *registry.Op\n", unexported(g.name(op.Name)))
	}
	b.WriteString("onHost tensor.Device // of the calls of [Ops.OnHost], else no device\n")
	b.WriteString("}\n\n// New looks up the operators. It builds nothing; call [registry.Registry.Warm] to build before the first call.\n" +
		"// The errors are [*registry.UnknownOpError], for a configuration without the operators, and [registry.ErrClosed].\n")
	b.WriteString("func New(reg *registry.Registry) (*Ops, error) {\no := new(Ops)\n")
	b.WriteString("for _, want := range []struct {\nop **registry.Op\nname string\n}{\n")
	for _, op := range ops {
		fmt.Fprintf(b, "{&o.%s, %q},\n", unexported(g.name(op.Name)), op.Name)
	}
	b.WriteString("} {\nop, err := reg.Lookup(want.name)\nif err != nil {\nreturn nil, err\n}\n*want.op = op\n}\nreturn o, nil\n}\n")
	b.WriteString("\n// OnHost returns the operators for tensors in host memory. Each call is a [registry.Op.CallHost] on the device: ")
	b.WriteString("it waits for\n// the results.\nfunc (o *Ops) OnHost(dev tensor.Device) *Ops {\non := *o\non.onHost = dev\nreturn &on\n}\n")
	for _, op := range ops {
		if err := g.operator(op); err != nil {
			return nil, err
		}
	}
	return format.Source(b.Bytes())
}

// operator writes the struct and the method of an operator.
func (g *goWriter) operator(op *opconfig.Op) error {
	name := g.name(op.Name)
	fmt.Fprintf(&g.b, "\n// %s are the arguments of [Ops.%s].\ntype %s struct {\n", name, name, name)
	var call, set []string
	for _, arg := range op.Schema.Args {
		kind, err := goType(op, arg)
		if err != nil {
			return err
		}
		field := g.name(arg.Name)
		g.field(field, kind, argComment(op, arg, kind))
		if strings.HasPrefix(kind, "*") && arg.Type.Kind != schema.Tensor {
			local := unexported(field) + "Value"
			set = append(set, fmt.Sprintf("%s := %s(%s)\nif a.%s != nil {\n%s = *a.%s\n}\n", local, kind[1:], goLiteral(arg), field, local, field))
			call = append(call, local)
		} else {
			call = append(call, "a."+field)
		}
	}
	doc := op.Doc
	if doc != "" {
		doc = ": " + doc
	}
	g.b.WriteString("}\n\n")
	g.comment(name + " calls " + op.Name + doc + ".")
	if len(op.Schema.Returns) > 0 {
		return g.returning(op, name, strings.Join(set, ""), strings.Join(call, ", "))
	}
	fmt.Fprintf(&g.b, "func (o *Ops) %s(ctx context.Context, a %s) error {\n%s"+
		"if o.onHost.Type != 0 {\nreturn o.%[4]s.CallHost(ctx, o.onHost, %[5]s)\n}\nreturn o.%[4]s.Call(ctx, %[5]s)\n}\n",
		name, name, strings.Join(set, ""), unexported(name), strings.Join(call, ", "))
	return nil
}

// returning writes the method of an operator with a result.
func (g *goWriter) returning(op *opconfig.Op, name, set, call string) error {
	kind, ok := map[schema.Kind]string{schema.Int: "int64", schema.Float: "float64", schema.Bool: "bool"}[op.Schema.Result()]
	if !ok {
		return usagef("%s: Go programs cannot receive the result %s; expected int, bool or float", op.Name, schema.Results(op.Schema.Returns))
	}
	fmt.Fprintf(&g.b, "func (o *Ops) %s(ctx context.Context, a %[1]s) (result %s, err error) {\n%svar v any\n"+
		"if o.onHost.Type != 0 {\nv, err = o.%[4]s.CallHostReturning(ctx, o.onHost, %[5]s)\n} else {\n"+
		"v, err = o.%[4]s.CallReturning(ctx, %[5]s)\n}\nif err != nil {\nreturn result, err\n}\nreturn v.(%[2]s), nil\n}\n",
		name, kind, set, unexported(name), call)
	return nil
}

// The largest widths, in characters, of a comment above a field and of one behind it.
const maxComment, maxBehind = 100, 80

// field writes a field of a struct. A long comment is above it.
func (g *goWriter) field(name, kind, comment string) {
	if len(comment) <= maxBehind {
		fmt.Fprintf(&g.b, "%s %s // %s\n", name, kind, comment)
		return
	}
	g.comment(comment)
	fmt.Fprintf(&g.b, "%s %s\n", name, kind)
}

// comment writes lines of a comment.
func (g *goWriter) comment(text string) {
	line := "//"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > maxComment {
			g.b.WriteString(line + "\n")
			line = "//"
		}
		line += " " + word
	}
	g.b.WriteString(line + "\n")
}

// goType returns the Go type of an argument. A default other than the zero value needs a pointer.
func goType(op *opconfig.Op, arg schema.Arg) (string, error) {
	kinds := map[schema.Kind]string{schema.Tensor: "*tensor.Tensor", schema.Int: "int64", schema.Float: "float64", schema.Bool: "bool",
		schema.Str: "string", schema.IntList: "[]int64"}
	kind, ok := kinds[arg.Type.Kind]
	if !ok {
		return "", usagef("%s: argument %s is %s, which Go programs cannot pass", op.Name, arg.Name, arg.Type)
	}
	if arg.Type.Kind == schema.IntList && arg.Default != nil && !arg.Default.IsNone() {
		return "", usagef("%s: argument %s has the default %s; Go code for a list with a default other than None is not generated",
			op.Name, arg.Name, arg.Default)
	}
	if arg.Type.Kind != schema.Tensor && arg.Type.Kind != schema.IntList && arg.Default != nil && !isZero(arg) {
		kind = "*" + kind
	}
	return kind, nil
}

// isZero reports whether the default of a number, bool or text is the zero value of its Go type.
func isZero(arg schema.Arg) bool {
	switch v := arg.Default.Any().(type) {
	case int64:
		return v == 0
	case float64:
		return v == 0
	case bool:
		return !v
	case string:
		return v == ""
	}
	return false
}

func goLiteral(arg schema.Arg) string {
	if text, ok := arg.Default.Any().(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprint(arg.Default.Any())
}

// argComment returns the comment of a field: "written: (B, D, L), the type of x; ...".
func argComment(op *opconfig.Op, arg schema.Arg, kind string) string {
	decl := op.Args[arg.Name]
	var words []string
	if shape := decl.Shape.String(); shape != "" {
		words = append(words, shape)
	}
	if len(decl.DTypes) > 0 {
		var types []string
		for _, word := range decl.DTypes {
			if op.Schema.Index(word) >= 0 {
				word = "the type of " + word
			}
			types = append(types, word)
		}
		words = append(words, spelling.OneOf(types))
		if len(words) == 2 && op.Schema.Index(decl.DTypes[0]) < 0 {
			words = []string{words[0] + " " + words[1]} // "(B, D) float32 or float16"
		}
	}
	if decl.RowMajor {
		words = append(words, "row-major")
	}
	text := strings.Join(words, ", ")
	if arg.Type.Mutable {
		text = strings.TrimSuffix("written: "+text, ": ")
	}
	for _, more := range []string{decl.Doc, optionalText(arg, kind)} {
		if text != "" && more != "" {
			text += "; "
		}
		text += more
	}
	if text == "" {
		return arg.Type.String()
	}
	return text
}

func optionalText(arg schema.Arg, kind string) string {
	switch {
	case arg.Type.Kind == schema.Tensor && arg.Type.Optional:
		return "may be nil"
	case arg.Type.Kind != schema.Tensor && strings.HasPrefix(kind, "*"):
		return "nil is " + goLiteral(arg)
	}
	return ""
}

// unexported returns the unexported form of a Go name.
func unexported(name string) string {
	n := max(1, strings.IndexFunc(name, unicode.IsLower)-1) // the capitals of the first word: URLPath is urlPath
	if name == strings.ToUpper(name) {
		n = len(name)
	}
	lower := strings.ToLower(name[:n]) + name[n:]
	if token.IsKeyword(lower) {
		return lower + "_"
	}
	return lower
}
