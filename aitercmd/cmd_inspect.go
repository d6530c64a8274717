package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

const inspectLong = `Show properties of the machine code of each AMD GPU kernel in a module: registers,
spills, local memory, waves per SIMD unit, and the instructions of its hottest loop.
The command builds the module for the AMD targets of --arch if the cache does not
have it. It needs no GPU. Its argument may also be a shared library. It prints a summary
and the worst kernels: those with spills or scratch memory, then those with the fewest
waves. --all prints the others too, --wide all columns, and --asm the instructions.

The hottest loop is the innermost loop that moves the most bytes. The command counts
its instructions if it finds llvm-objdump: by LLVM_OBJDUMP, next to hipcc, or on PATH.`

const inspectExample = `  aiterctl inspect module_causal_conv1d --arch gfx942
  aiterctl inspect module_causal_conv1d --arch gfx942,gfx1201 --kernel 'fwd.*bf16' --json
  aiterctl inspect rms_norm --arch gfx942 --sort vgprs --all --wide
  aiterctl inspect rms_norm --arch gfx942 --kernel 'rms_norm_kernel<float, true>' --asm`

type inspectFlags struct {
	arch, kernel, sort string
	all, wide, asm     bool
	match              *regexp.Regexp
}

func newInspect(a *app) *cobra.Command {
	f := new(inspectFlags)
	cmd := &cobra.Command{
		Use:               "inspect MODULE|OPERATOR|FILE.so",
		Short:             "Show registers, spills, occupancy and hot loops of AMD GPU kernels",
		Long:              inspectLong,
		Example:           inspectExample,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.allNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.inspect(cmd.Context(), f, args[0]) },
	}
	cmd.Flags().StringVar(&f.arch, "arch", "", archUsage)
	cmd.Flags().StringVar(&f.kernel, "kernel", "", "only kernels whose name matches the regular `EXPRESSION`")
	cmd.Flags().StringVar(&f.sort, "sort", "worst", "order of the kernels: "+strings.Join(kernelOrders(), ", "))
	cmd.Flags().BoolVar(&f.all, "all", false, fmt.Sprintf("print all kernels, not the first %d", maxKernels))
	cmd.Flags().BoolVar(&f.wide, "wide", false, "print all columns and the whole names")
	cmd.Flags().BoolVar(&f.asm, "asm", false, "print the instructions of the kernels")
	a.completeArch(cmd)
	a.completeFlag(cmd, "sort", kernelOrders()...)
	return cmd
}

// inspect runs the command inspect for a module or a shared library.
func (a *app) inspect(ctx context.Context, f *inspectFlags, name string) error {
	var err error
	if f.match, err = regexp.Compile(f.kernel); err != nil {
		return usagef("--kernel: %w", err)
	}
	if !slices.Contains(kernelOrders(), f.sort) {
		return usagef("--sort %q: expected %s", f.sort, strings.Join(kernelOrders(), ", "))
	}
	libraries := []string{name}
	if !strings.HasSuffix(name, ".so") {
		if libraries, err = a.inspectedLibraries(ctx, f.arch, name); err != nil {
			return err
		}
	}
	list := []kernelItem{}
	disassembler := a.disassembler(ctx)
	for _, path := range libraries {
		items, err := inspectLibrary(ctx, path, f.match, disassembler)
		if err != nil {
			return err
		}
		list = append(list, items...)
	}
	if f.asm {
		return a.printCode(f, list)
	}
	sortKernels(list, f.sort)
	if a.json {
		return a.writeJSON(map[string]any{"kernels": list})
	}
	return a.printKernels(f, list)
}

// disassembler returns the disassembler. If it is missing, disassembler prints a message and
// returns nil.
func (a *app) disassembler(ctx context.Context) codeobject.Disassembler {
	d, err := (&toolchain.Finder{Env: a.getenv}).Disassembler(ctx)
	if err != nil {
		fmt.Fprintf(a.err, "instructions are not counted: %v\n", err)
		return nil
	}
	return &lenientDisassembler{d, a.err, sync.Once{}}
}

// lenientDisassembler returns no text for code that the disassembler does not support,
// and prints one warning.
type lenientDisassembler struct {
	*toolchain.Disassembler
	warnings io.Writer
	once     sync.Once
}

// Disassemble implements codeobject.Disassembler; the error is the context's.
func (d *lenientDisassembler) Disassemble(ctx context.Context, file string) ([]byte, error) {
	text, err := d.Disassembler.Disassemble(ctx, file)
	if err != nil && ctx.Err() == nil {
		d.once.Do(func() { fmt.Fprintf(d.warnings, "instructions are not counted: %v\n", err) })
		return nil, nil
	}
	return text, err
}

// inspectedLibraries builds a module, or the parts of an operator, for the AMD targets of --arch.
func (a *app) inspectedLibraries(ctx context.Context, arch, name string) ([]string, error) {
	p := a.newProgress()
	defer p.close()
	m, err := a.openManager(ctx, func(s *settings.Settings) { s.Observer = p })
	if err != nil {
		return nil, err
	}
	defer m.Close()
	targets, err := a.targets(ctx, arch)
	if err != nil {
		return nil, err
	}
	reqs, err := moduleSelection{modules: []string{name}, parts: new(partFlags), targets: targets}.requests(m.Config())
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if t.Vendor() != target.HIP {
			return nil, usagef("inspect reads AMD code, not code for %s; give a target with --arch, such as --arch gfx942", t)
		}
	}
	results, err := m.Build(ctx, reqs...)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, r := range results {
		if !slices.Contains(paths, r.Artifact.Path) { // parts may have the library of the whole module
			paths = append(paths, r.Artifact.Path)
		}
	}
	return paths, nil
}

// inspectLibrary returns the kernels of a library whose names match.
func inspectLibrary(ctx context.Context, path string, match *regexp.Regexp, d codeobject.Disassembler) ([]kernelItem, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usagef("library: %w", err)
	}
	defer file.Close()
	reports, err := codeobject.Inspect(ctx, file, d)
	if errors.Is(err, codeobject.ErrNoCode) {
		return nil, usagef("%s: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var items []kernelItem
	for _, r := range reports {
		if match.MatchString(r.Name) {
			items = append(items, newKernelItem(r))
		}
	}
	return items, nil
}
