package aitercmd

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

const inspectLong = `Show properties of the machine code of each GPU kernel in a module: registers, spills,
local memory, waves per SIMD unit, and the instructions of its hottest loop. The command
builds the module for the targets of --arch if the cache does not have it. It needs no
GPU. Its argument may also be the path of a shared library. It prints a summary and the
worst kernels: those with spills or scratch memory, then those with the fewest waves. --all
prints the others too, --wide prints all columns, and --asm prints the instructions.

For an NVIDIA GPU the waves are the warps of a scheduler, VGPR is the registers of a
thread, LDS is shared memory, as cuobjdump counts it, and SCRATCH is local memory. Local
memory has spilled registers and arrays; the machine code does not distinguish them.

The hottest loop is the innermost loop that moves the most bytes. The command counts its
instructions if it finds a disassembler. For AMD this is llvm-objdump: the one that
LLVM_OBJDUMP names, the one next to hipcc, or the one on PATH. For NVIDIA it is cuobjdump
with nvdisasm: the one that CUOBJDUMP names, the one next to nvcc, or the one on PATH.`

const inspectExample = `  aiterctl inspect module_causal_conv1d --arch gfx942
  aiterctl inspect module_causal_conv1d --arch gfx942,gfx1201 --kernel 'fwd.*bf16' --json
  aiterctl inspect rms_norm --arch gfx942 --sort vgprs --all --wide
  aiterctl inspect rms_norm --arch sm_90 --sort spills
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
		Short:             "Show registers, spills, occupancy and hot loops of GPU kernels",
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
	disassembler := &disassemblers{finder: &toolchain.Finder{Env: a.getenv}, warnings: a.err, found: map[elf.Machine]*toolchain.Disassembler{}}
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

// disassemblers finds the disassembler of each vendor when code needs it. If there is none, or if it does not support the
// code, disassemblers returns no text and prints one warning for each vendor.
type disassemblers struct {
	finder   *toolchain.Finder
	warnings io.Writer
	found    map[elf.Machine]*toolchain.Disassembler // nil: none, and a warning was printed
}

// Disassemble implements codeobject.Disassembler; the errors are those of the file and the context.
func (d *disassemblers) Disassemble(ctx context.Context, file string) ([]byte, error) {
	machine, err := elfMachine(file)
	if err != nil {
		return nil, err
	}
	if _, known := d.found[machine]; !known {
		find := d.finder.Disassembler
		if machine == elf.EM_CUDA {
			find = d.finder.CUDADisassembler
		}
		if d.found[machine], err = find(ctx); err != nil {
			return nil, d.missing(ctx, machine, err)
		}
	}
	if d.found[machine] == nil {
		return nil, nil
	}
	text, err := d.found[machine].Disassemble(ctx, file)
	if err != nil {
		return nil, d.missing(ctx, machine, err)
	}
	return text, nil
}

// missing prints the reason why there are no instructions. It returns the context's error.
func (d *disassemblers) missing(ctx context.Context, machine elf.Machine, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.found[machine] = nil
	fmt.Fprintf(d.warnings, "instructions are not counted: %v\n", err)
	return nil
}

// elfMachine returns the machine in the header of an ELF file.
func elfMachine(path string) (elf.Machine, error) {
	const at = 18
	head := make([]byte, at+2)
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	_, err = io.ReadFull(file, head)
	return elf.Machine(binary.LittleEndian.Uint16(head[at:])), err
}

// inspectedLibraries builds a module, or the parts of an operator, for the targets of --arch.
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
		if t.Vendor() == target.CPU {
			return nil, usagef("inspect reads GPU code, not code for %s; give a target with --arch, such as --arch gfx942 or --arch sm_90", t)
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
