package aitercmd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/internal/term"
)

// kernelItem is a kernel in a report.
type kernelItem struct {
	Kernel     string    `json:"kernel"`
	Symbol     string    `json:"symbol"`
	Target     string    `json:"target"`
	VGPRs      int       `json:"vgprs"` // NVIDIA: registers of a thread
	AGPRs      int       `json:"agprs"`
	SGPRs      int       `json:"sgprs"`
	VGPRSpills int       `json:"vgpr_spills"`
	SGPRSpills int       `json:"sgpr_spills"`
	LDS        int       `json:"lds_bytes"`     // NVIDIA: shared memory
	Scratch    int       `json:"scratch_bytes"` // NVIDIA: local memory, with spills
	Kernarg    int       `json:"kernarg_bytes"`
	Code       int       `json:"code_bytes"`
	Wave       int       `json:"wave"`
	Waves      int       `json:"waves_per_simd"` // NVIDIA: warps of a scheduler; 0: unknown target
	Limit      string    `json:"waves_limited_by"`
	Loop       *loopItem `json:"loop"` // null without a disassembler
	All        *counts   `json:"all"`  // null without a disassembler

	code []codeobject.Instruction // nil without a disassembler
}

// cell returns a number that only code for AMD has, "-" for other code.
func (x kernelItem) cell(n int) string {
	if codeobject.IsCUDA(x.Target) {
		return "-"
	}
	return strconv.Itoa(n)
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
		Code: r.CodeSize, code: r.Code, Wave: r.Wave, Waves: r.Waves, Limit: r.Limit,
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

// kernelOrders returns the orders of --sort.
func kernelOrders() []string {
	return []string{"worst", "waves", "spills", "vgprs", "lds", "code", "loop", "name"}
}

// sortKernels sorts kernels, the worst first. Kernels that are equal keep their order, by name.
func sortKernels(list []kernelItem, order string) {
	loop := func(x kernelItem) int {
		if x.Loop == nil {
			return 0
		}
		return x.Loop.Instructions
	}
	spills := func(x kernelItem) int { return x.VGPRSpills + x.SGPRSpills }
	slices.SortStableFunc(list, func(x, y kernelItem) int {
		switch order {
		case "waves":
			return cmp.Compare(x.Waves, y.Waves)
		case "spills":
			return cmp.Or(cmp.Compare(spills(y), spills(x)), cmp.Compare(y.Scratch, x.Scratch)) // NVIDIA's spills are in local memory
		case "vgprs":
			return cmp.Compare(y.VGPRs+y.AGPRs, x.VGPRs+x.AGPRs)
		case "lds":
			return cmp.Compare(y.LDS, x.LDS)
		case "code":
			return cmp.Compare(y.Code, x.Code)
		case "loop":
			return cmp.Compare(loop(y), loop(x))
		case "name":
			return cmp.Compare(x.Kernel, y.Kernel)
		}
		return cmp.Or(cmp.Compare(spills(y), spills(x)), cmp.Compare(y.Scratch, x.Scratch), cmp.Compare(x.Waves, y.Waves),
			cmp.Compare(y.VGPRs+y.AGPRs, x.VGPRs+x.AGPRs))
	})
}

// maxKernels is the number of kernels that inspect prints without --all.
const maxKernels = 20

// printKernels prints a summary of each target and a table of kernels.
func (a *app) printKernels(f *inspectFlags, list []kernelItem) error {
	for _, line := range summaries(list) {
		fmt.Fprintln(a.out, line)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.out, "no kernel matches")
		return err
	}
	fmt.Fprintln(a.out)
	shown := list
	if !f.all {
		shown = list[:min(len(list), maxKernels)]
	}
	rows := inspectRows(shown)
	if !f.wide {
		rows = a.shortRows(shown)
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if more := len(list) - len(shown); more > 0 {
		fmt.Fprintf(a.out, "\n%s more: --all prints them\n", spelling.Count(more, "kernel"))
	}
	return nil
}

// summaries returns a line for each target: "gfx942: 40 kernels, none spills, ...".
func summaries(list []kernelItem) []string {
	byTarget := map[string][]kernelItem{}
	for _, x := range list {
		byTarget[x.Target] = append(byTarget[x.Target], x)
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(byTarget)) {
		spills, scratch := 0, 0
		var waves []int
		for _, x := range byTarget[name] {
			if x.VGPRSpills+x.SGPRSpills > 0 {
				spills++
			}
			if x.Scratch > 0 {
				scratch++
			}
			waves = append(waves, x.Waves)
		}
		slices.Sort(waves)
		what := fmt.Sprintf("%d with spills, %d with scratch memory; waves a SIMD unit", spills, scratch)
		if codeobject.IsCUDA(name) {
			what = fmt.Sprintf("%d with local memory (spills or arrays); warps a scheduler", scratch)
		}
		lines = append(lines, fmt.Sprintf("%s: %s; %s: %d to %d, median %d",
			name, spelling.Count(len(waves), "kernel"), what, waves[0], waves[len(waves)-1], waves[len(waves)/2]))
	}
	return lines
}

// shortRows returns the table without --wide. It shortens names so that lines have at most a.width characters.
func (a *app) shortRows(list []kernelItem) [][]string {
	rows := [][]string{{"TARGET", "WAVES", "LIMITED BY", "VGPR", "SCRATCH", "LDS", "LOOP", "KERNEL"}}
	amd := slices.ContainsFunc(list, func(x kernelItem) bool { return !codeobject.IsCUDA(x.Target) })
	if !amd {
		rows[0] = []string{"TARGET", "WARPS", "LIMITED BY", "REGISTERS", "LOCAL", "SHARED", "LOOP", "KERNEL"}
	}
	n := strconv.Itoa
	for _, x := range list {
		rows = append(rows, []string{x.Target, n(x.Waves), cmp.Or(x.Limit, "-"), n(x.VGPRs + x.AGPRs), n(x.Scratch), n(x.LDS),
			loopCells(x.Loop)[0], x.Kernel})
	}
	for i := range rows {
		spills := "SPILLS"
		if i > 0 {
			spills = list[i-1].cell(list[i-1].VGPRSpills + list[i-1].SGPRSpills)
		}
		if amd {
			rows[i] = slices.Insert(rows[i], 4, spills)
		}
	}
	if a.width == 0 {
		return rows
	}
	used, last := 0, len(rows[0])-1
	for i := range last {
		widest := 0
		for _, row := range rows {
			widest = max(widest, len(row[i]))
		}
		used += widest + 2
	}
	for _, row := range rows {
		row[last] = term.Truncate(row[last], max(a.width-used, len("KERNEL")+1))
	}
	return rows
}

// printCode prints the instructions of kernels.
func (a *app) printCode(f *inspectFlags, list []kernelItem) error {
	if len(list) == 0 {
		return usagef("no kernel matches %q", f.kernel)
	}
	for i, x := range list {
		if x.code == nil {
			return fmt.Errorf("the instructions of %s are unknown: no disassembler; aiterctl help inspect lists where it is searched", x.Kernel)
		}
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintf(a.out, "; %s for %s\n", x.Kernel, x.Target)
		for _, in := range x.code {
			if _, err := fmt.Fprintf(a.out, "%8x  %s\n", in.Address, strings.TrimSpace(in.Guard+" "+in.Mnemonic+" "+in.Operands)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inspectRows returns a table: the resources of a kernel, then the instructions of its
// hottest loop.
func inspectRows(list []kernelItem) [][]string {
	rows := [][]string{{"TARGET", "KERNEL", "VGPR", "AGPR", "SGPR", "VGPR/SGPR SPILLS", "SCRATCH", "LDS", "WAVES", "LIMITED BY",
		"KERNARG", "CODE", "LOOP", "WIDE/NARROW LOADS", "WIDE/NARROW STORES", "LOOP LDS", "VALU", "DPP"}}
	n := strconv.Itoa
	for _, x := range list {
		row := []string{x.Target, x.Kernel, n(x.VGPRs), x.cell(x.AGPRs), x.cell(x.SGPRs), x.cell(x.VGPRSpills) + "/" + x.cell(x.SGPRSpills),
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
