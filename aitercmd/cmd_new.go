package aitercmd

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"golang.org/x/tools/txtar"
)

//go:embed templates/operator.txtar
var operatorTemplate string

const newOperatorLong = `Write a Go module with an operator of your own into a new or empty folder: its
configuration, kernels for GPUs and the CPU, a reference with tests, a call with named
arguments, a program with all commands of aiterctl, a program that calls the operator, and
a README. The operator computes out = x + alpha * y; change it into your own.`

func newNew(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "new", Short: "Write the files of a new operator"})
	cmd.AddCommand(newNewOperator(a))
	return cmd
}

func newNewOperator(a *app) *cobra.Command {
	var module string
	cmd := &cobra.Command{
		Use: "operator NAME [FOLDER]", Short: "Write a Go module with an operator", Long: newOperatorLong,
		Example: "  aiterctl new operator scaled_add\n" +
			"  aiterctl new operator scaled_add kernels/scaled_add --module example.com/kernels/scaled_add",
		Args: args(cobra.RangeArgs(1, 2)),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := args[0]
			if len(args) > 1 {
				dir = args[1]
			}
			return a.newOperator(args[0], dir, module)
		},
	}
	cmd.Flags().StringVar(&module, "module", "", "path of the Go module (default example.com/NAME)")
	return cmd
}

var operatorName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// demo is the name of the generated program that calls the operator. The other generated program has the operator's name.
const demo = "demo"

// newOperatorData has the fields of the template of an operator.
type newOperatorData struct{ Name, GoModule, Package, Type string }

// Import returns the module's import, with the package's name if the path ends with another one.
func (d newOperatorData) Import() string {
	quoted := fmt.Sprintf("%q", d.GoModule)
	if path.Base(d.GoModule) == d.Package {
		return quoted
	}
	return d.Package + " " + quoted
}

// newOperator writes the files of a new operator.
func (a *app) newOperator(name, dir, module string) error {
	if !operatorName.MatchString(name) {
		return usagef("operator %q: expected lower-case words with underscores, such as scaled_add", name)
	}
	if name == demo {
		return usagef("operator %q: cmd/%s is the program that calls it; give another name", name, demo)
	}
	if entries, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usagef("folder: %w", err)
	} else if len(entries) > 0 {
		return usagef("%s is not empty; give a new or empty folder: aiterctl new operator %s FOLDER", dir, name)
	}
	if module == "" {
		module = "example.com/" + name
	}
	data := newOperatorData{Name: name, GoModule: module, Package: strings.ReplaceAll(name, "_", ""), Type: goName(name)}
	if err := writeTemplate(dir, data); err != nil {
		return err
	}
	generated := *a
	generated.program.Modules, generated.roots, generated.noBuiltin = nil, []string{dir}, true
	if err := generated.generateGo([]string{"module_" + name}, data.Package, filepath.Join(dir, "ops.go"), nil); err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(map[string]string{"operator": name, "folder": dir, "module": module})
	}
	_, err := fmt.Fprintf(a.out, "wrote %s; next:\n  cd %s\n  go mod tidy\n  go test ./...\n  go run ./cmd/%s\n  go run ./cmd/%s test\n",
		dir, dir, demo, name)
	return err
}

// writeTemplate writes the files of the template to a folder.
func writeTemplate(dir string, data newOperatorData) error {
	t, err := template.New("operator").Parse(operatorTemplate)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, data); err != nil {
		return err
	}
	for _, f := range txtar.Parse(text.Bytes()).Files {
		file := filepath.Join(dir, filepath.FromSlash(f.Name))
		if path.Ext(f.Name) == ".go" {
			if f.Data, err = format.Source(f.Data); err != nil {
				return fmt.Errorf("write %s: %w", file, err)
			}
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
		if err := os.WriteFile(file, f.Data, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	return nil
}

// goName returns an exported Go name for a name with underscores: "rms_norm" is RmsNorm, "pad_slot_id" PadSlotID.
func goName(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		switch {
		case word == "":
		case word == "id":
			b.WriteString("ID")
		default:
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
