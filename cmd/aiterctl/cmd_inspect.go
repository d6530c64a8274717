package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
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
have it. It needs no GPU. Its argument may also be a shared library.

The hottest loop is the innermost loop that moves the most bytes. The command counts
its instructions if it finds llvm-objdump: by LLVM_OBJDUMP, next to hipcc, or on PATH.`

const inspectExample = `  aiterctl inspect module_causal_conv1d --arch gfx942
  aiterctl inspect module_causal_conv1d --arch gfx942,gfx1201 --kernel 'fwd.*bf16' --json`

type inspectFlags struct {
	arch   string
	kernel string
	match  *regexp.Regexp
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
	a.completeArch(cmd)
	return cmd
}

// inspect runs the command inspect for a module or a shared library.
func (a *app) inspect(ctx context.Context, f *inspectFlags, name string) error {
	var err error
	if f.match, err = regexp.Compile(f.kernel); err != nil {
		return usagef("--kernel: %w", err)
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
	if a.json {
		return a.writeJSON(map[string]any{"kernels": list})
	}
	return a.table(inspectRows(list))
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

// kernelItem is a kernel in a report.
type kernelItem struct {
	Kernel     string    `json:"kernel"`
	Symbol     string    `json:"symbol"`
	Target     string    `json:"target"`
	VGPRs      int       `json:"vgprs"`
	AGPRs      int       `json:"agprs"`
	SGPRs      int       `json:"sgprs"`
	VGPRSpills int       `json:"vgpr_spills"`
	SGPRSpills int       `json:"sgpr_spills"`
	LDS        int       `json:"lds_bytes"`
	Scratch    int       `json:"scratch_bytes"`
	Kernarg    int       `json:"kernarg_bytes"`
	Code       int       `json:"code_bytes"`
	Wave       int       `json:"wave"`
	Waves      int       `json:"waves_per_simd"` // 0: unknown target
	Limit      string    `json:"waves_limited_by"`
	Loop       *loopItem `json:"loop"` // null without a disassembler
	All        *counts   `json:"all"`  // null without a disassembler
}

// loopItem is the hottest loop of a kernel.
type loopItem struct {
	Whole bool `json:"whole_kernel"` // no loop moves data
	counts
}

// counts are numbers of instructions; bytes are those of one lane.
type counts struct {
	Instructions int `json:"instructions"`
	WideLoads    int `json:"loads_16"`
	Loads        int `json:"loads_narrow"`
	WideStores   int `json:"stores_16"`
	Stores       int `json:"stores_narrow"`
	LoadBytes    int `json:"load_bytes"`
	StoreBytes   int `json:"store_bytes"`
	LDS          int `json:"lds"`
	VALU         int `json:"valu"`
	Matrix       int `json:"matrix"`
	DPP          int `json:"dpp"`
	Scratch      int `json:"scratch"`
}

func newKernelItem(r codeobject.Report) kernelItem {
	x := kernelItem{
		Kernel: r.Name, Symbol: r.Symbol, Target: r.Target, VGPRs: r.VGPRs, AGPRs: r.AGPRs, SGPRs: r.SGPRs,
		VGPRSpills: r.VGPRSpills, SGPRSpills: r.SGPRSpills, LDS: r.LDS, Scratch: r.Scratch, Kernarg: r.Kernarg,
		Code: r.CodeSize, Wave: r.Wave, Waves: r.Waves, Limit: r.Limit,
	}
	if l := r.Loop; l != nil {
		all := newCounts(r.All)
		x.Loop, x.All = &loopItem{l.Whole, newCounts(l.Counts)}, &all
	}
	return x
}

func newCounts(c codeobject.Counts) counts {
	return counts{
		Instructions: c.Instructions, WideLoads: c.WideLoads, Loads: c.Loads, WideStores: c.WideStores, Stores: c.Stores,
		LoadBytes: c.LoadBytes, StoreBytes: c.StoreBytes, LDS: c.LDS, VALU: c.VALU, Matrix: c.Matrix, DPP: c.DPP, Scratch: c.Scratch,
	}
}

// inspectRows returns a table: the resources of a kernel, then the instructions of its
// hottest loop.
func inspectRows(list []kernelItem) [][]string {
	rows := [][]string{{"TARGET", "KERNEL", "VGPR", "AGPR", "SGPR", "VGPR/SGPR SPILLS", "SCRATCH", "LDS", "WAVES", "LIMITED BY",
		"KERNARG", "CODE", "LOOP", "WIDE/NARROW LOADS", "WIDE/NARROW STORES", "LOOP LDS", "VALU", "DPP"}}
	n := strconv.Itoa
	for _, x := range list {
		row := []string{x.Target, x.Kernel, n(x.VGPRs), n(x.AGPRs), n(x.SGPRs), fmt.Sprintf("%d/%d", x.VGPRSpills, x.SGPRSpills),
			n(x.Scratch), n(x.LDS), n(x.Waves), cmp.Or(x.Limit, "-"), n(x.Kernarg), n(x.Code)}
		rows = append(rows, append(row, loopCells(x.Loop)...))
	}
	return rows
}

// loopCells returns the cells of a loop.
func loopCells(l *loopItem) []string {
	if l == nil {
		return []string{"-", "-", "-", "-", "-", "-"}
	}
	length := strconv.Itoa(l.Instructions)
	if l.Whole {
		length += " (no loop)"
	}
	return []string{length, fmt.Sprintf("%d/%d", l.WideLoads, l.Loads), fmt.Sprintf("%d/%d", l.WideStores, l.Stores),
		strconv.Itoa(l.LDS), strconv.Itoa(l.VALU), strconv.Itoa(l.DPP)}
}
