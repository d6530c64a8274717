package upstream

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/process"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// Compiler compiles the bindings of modules for the host. The compiled code is not executed.
type Compiler struct {
	Toolchain *toolchain.Toolchain
	Target    target.Target
}

// BindingsError reports bindings of a module that cannot be read.
type BindingsError struct {
	Module, Source string
	Msg            string // one line: the compiler's error, or a mistake in the table of bindings
}

func (e *BindingsError) Error() string {
	return fmt.Sprintf("%s: cannot read the functions of %s: %s", e.Module, e.Source, e.Msg)
}

const (
	bindingsDir     = "bindings" // in the tree of declarations
	bindingsSection = "aiter_bindings"
	bindingsTimeout = 5 * time.Minute // of one compile
	maxTable        = 1 << 16         // bytes
)

// functions returns the functions of a module: those that its sources bind with pybind11, and those of its stubs for ctypes. If the
// bindings do not name an argument, it has the name in the stub.
func (c *Checkout) functions(ctx context.Context, d Declared, m *Module, cc Compiler) ([]Function, error) {
	var list []Function
	var ctypes []string
	for _, op := range m.Operators {
		if op.ABI == CTypes {
			ctypes = append(ctypes, op.Function)
		}
	}
	for _, file := range m.Sources {
		text, err := c.text(file)
		if err != nil {
			return nil, err
		}
		if strings.Contains(text, "PYBIND11_MODULE") {
			bound, err := c.bindings(ctx, d, m, file, cc)
			if err != nil {
				return nil, err
			}
			list = append(list, bound...)
		}
		for _, f := range readExports(text, ctypes) {
			if !slices.ContainsFunc(list, func(x Function) bool { return x.Name == f.Name }) {
				list = append(list, f)
			}
		}
	}
	for i := range list {
		c.nameParams(&list[i], m)
	}
	return list, nil
}

// nameParams names the arguments that have no name yet: as in the stub, else a1, a2 and so on.
func (c *Checkout) nameParams(f *Function, m *Module) {
	for _, op := range m.Operators {
		if op.Function == f.Name && len(op.Args) == len(f.Params) {
			for i := range f.Params {
				if f.Params[i].Name == "" {
					f.Params[i].Name = op.Args[i].Name
				}
			}
		}
	}
	for i := range f.Params {
		if f.Params[i].Name == "" {
			f.Params[i].Name = fmt.Sprintf("a%d", i+1)
		}
	}
}

// bindings compiles a source with PYBIND11_MODULE and reads the table of bindings in the object.
func (c *Checkout) bindings(ctx context.Context, d Declared, m *Module, source string, cc Compiler) ([]Function, error) {
	dir, err := os.MkdirTemp("", "aiter-bindings-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(filepath.Join(dir, "tree"), d.Files); err != nil {
		return nil, err
	}
	unit := fmt.Sprintf("#include %q\nAITER_BINDINGS_TABLE\n", filepath.Join(c.Dir, filepath.FromSlash(source)))
	if err := os.WriteFile(filepath.Join(dir, "unit.hip"), []byte(unit), 0o600); err != nil {
		return nil, err
	}
	include := []string{filepath.Join(dir, "tree", bindingsDir)}
	standins := d.Standins()
	for _, name := range standins.Include {
		include = append(include, filepath.Join(dir, "tree", filepath.FromSlash(name)))
	}
	for _, name := range append([]string{"csrc/include", "csrc"}, m.Include...) {
		include = append(include, filepath.Join(c.Dir, filepath.FromSlash(name)))
	}
	flags := slices.Concat(d.flags(), standins.Flags, definitions(m),
		[]string{"-DTORCH_EXTENSION_NAME=bindings", "-O0", "-w", "-fconstexpr-steps=1000000000"})
	object := filepath.Join(dir, "unit.o")
	out := process.Buffer{Limit: 1 << 20}
	err = (&process.Command{Dir: dir, Env: cc.Toolchain.Environ(), Output: &out, Grace: 5 * time.Second, Timeout: bindingsTimeout,
		Argv: cc.Toolchain.CompileArgs(toolchain.Unit{Source: "unit.hip", Object: object, Depfile: filepath.Join(dir, "unit.d"), Include: include,
			Flags: flags, Target: cc.Target, Pass: toolchain.Host, ID: "bindings", Root: dir})}).Run(ctx)
	if context.Cause(ctx) != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, &BindingsError{m.Name, source, firstError(string(out.Bytes()), err)}
	}
	table, err := tableOf(object)
	if err != nil {
		return nil, &BindingsError{m.Name, source, err.Error()}
	}
	list, err := readTable(table)
	if err != nil {
		return nil, &BindingsError{m.Name, source, err.Error()}
	}
	return list, nil
}

// firstError returns the first line of a compiler's output that contains an error, else the text of err.
func firstError(output string, err error) string {
	for line := range strings.Lines(output) {
		if strings.Contains(line, "error:") {
			return strings.TrimSpace(line)
		}
	}
	return err.Error()
}

// flags returns the HIP flags that all declared modules begin with: the defaults of the configuration.
func (d Declared) flags() []string {
	var common []string
	for i, m := range d.Config.Modules {
		flags := slices.Concat(m.Flags.Common, m.Flags.HIP)
		if i == 0 {
			common = flags
		}
		n := 0
		for n < min(len(common), len(flags)) && common[n] == flags[n] {
			n++
		}
		common = common[:n]
	}
	return common
}

// definitions returns the flags of a module that define or undefine macros.
func definitions(m *Module) []string {
	var list []string
	for _, f := range m.Flags {
		for _, word := range strings.Fields(f.Text) {
			if !f.Unknown && (strings.HasPrefix(word, "-D") || strings.HasPrefix(word, "-U")) {
				list = append(list, word)
			}
		}
	}
	return list
}

// tableOf returns the table of bindings in an object file.
func tableOf(object string) (string, error) {
	f, err := elf.Open(object)
	if err != nil {
		return "", err
	}
	defer f.Close()
	s := f.Section(bindingsSection)
	if s == nil {
		return "", errors.New("the object has no table of bindings")
	}
	data, err := s.Data()
	if err != nil {
		return "", err
	}
	if len(data) < 8 {
		return "", errors.New("the table of bindings is too short")
	}
	size := binary.LittleEndian.Uint64(data)
	if size > maxTable || int(size) > len(data)-8 {
		return "", fmt.Errorf("the table of bindings has %d bytes, more than %d", size, maxTable)
	}
	return string(data[8 : 8+size]), nil
}
