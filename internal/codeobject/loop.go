package codeobject

import (
	"slices"
	"strconv"
	"strings"
)

// Counts are numbers of instructions by kind.
type Counts struct {
	Instructions int
	WideLoads    int // from global memory, 16 bytes a lane
	Loads        int // from global memory, narrower
	WideStores   int // to global memory, 16 bytes a lane
	Stores       int // to global memory, narrower
	LoadBytes    int // a lane, wide and narrow
	StoreBytes   int // a lane, wide and narrow
	LDS          int // local data share, with permutes
	DPP          int // vector instructions that read another lane's register
	VALU         int // vector arithmetic; a dual instruction counts twice
	Matrix       int // products of matrix cores
	Scratch      int // private memory: spills and arrays
}

// Loop is the loop in which a kernel probably spends most of its time; see [HottestLoop].
type Loop struct {
	Counts
	From, To uint64 // addresses of the first and the last instruction
	Whole    bool   // the whole kernel, because no loop of it loads or stores
}

// HottestLoop returns the innermost loop that loads and stores most bytes in an iteration, and of several such loops the
// longest. If no loop loads or stores, it returns the whole function.
func HottestLoop(code []Instruction) Loop {
	best := Loop{Counts: count(code), Whole: true}
	if len(code) > 0 {
		best.From, best.To = code[0].Address, code[len(code)-1].Address
	}
	for _, l := range innermost(code) {
		l.Counts = count(between(code, l.From, l.To))
		if l.LoadBytes+l.StoreBytes == 0 {
			continue
		}
		if best.Whole || l.isHotter(best) {
			best = l
		}
	}
	return best
}

func (l Loop) isHotter(than Loop) bool {
	a, b := l.LoadBytes+l.StoreBytes, than.LoadBytes+than.StoreBytes
	return a > b || a == b && l.Instructions > than.Instructions
}

// innermost returns the loops that contain no other. A loop is a backward branch.
func innermost(code []Instruction) []Loop {
	var all, inner []Loop
	for _, in := range code {
		if in.Target != 0 && in.Target <= in.Address {
			all = append(all, Loop{From: in.Target, To: in.Address})
		}
	}
	for _, l := range all {
		if !slices.ContainsFunc(all, l.contains) {
			inner = append(inner, l)
		}
	}
	return inner
}

// contains reports whether o is another loop within l.
func (l Loop) contains(o Loop) bool {
	return o.From >= l.From && o.To <= l.To && (o.From > l.From || o.To < l.To)
}

// between returns the instructions at the addresses from, to and those between.
func between(code []Instruction, from, to uint64) []Instruction {
	var out []Instruction
	for _, in := range code {
		if in.Address >= from && in.Address <= to {
			out = append(out, in)
		}
	}
	return out
}

func count(code []Instruction) Counts {
	var c Counts
	for _, in := range code {
		c.add(in)
	}
	return c
}

func (c *Counts) add(in Instruction) {
	c.Instructions++
	if in.isSASS() {
		c.addSASS(in)
		return
	}
	unit, rest, _ := strings.Cut(in.Mnemonic, "_")
	switch unit {
	case "global", "buffer", "flat":
		c.memory(rest)
	case "scratch":
		c.Scratch++
	case "ds":
		c.LDS++
	case "v":
		if isMatrix(rest) {
			c.Matrix++
			return
		}
		c.VALU++
		if strings.HasPrefix(rest, "dual_") {
			c.VALU++
		}
		if isDPP(in) {
			c.DPP++
		}
	}
}

// isMatrix reports whether v_rest is a product of matrix cores, dense or sparse.
func isMatrix(rest string) bool {
	kind, _, _ := strings.Cut(rest, "_")
	return slices.Contains([]string{"mfma", "smfmac", "wmma", "swmmac"}, kind)
}

func isDPP(in Instruction) bool {
	if strings.HasSuffix(in.Mnemonic, "_dpp") || strings.HasSuffix(in.Mnemonic, "_dpp8") {
		return true
	}
	for _, control := range []string{"row_", "wave_sh", "wave_ro", "quad_perm", "dpp8"} {
		if strings.Contains(in.Operands, control) {
			return true
		}
	}
	return false
}

// memory counts "load_dwordx4", "store_b128", "load_ushort", "load_d16_hi_b16".
func (c *Counts) memory(what string) {
	bytes := accessBytes(what)
	switch {
	case strings.HasPrefix(what, "load_lds"): // from global memory to LDS
		c.Loads++
		c.LoadBytes += bytes
	case strings.HasPrefix(what, "load") && bytes == 16:
		c.WideLoads++
		c.LoadBytes += bytes
	case strings.HasPrefix(what, "load"):
		c.Loads++
		c.LoadBytes += bytes
	case strings.HasPrefix(what, "store") && bytes == 16:
		c.WideStores++
		c.StoreBytes += bytes
	case strings.HasPrefix(what, "store"):
		c.Stores++
		c.StoreBytes += bytes
	}
}

// accessBytes returns the size that ends a mnemonic: dwordx4 and b128 are 16 bytes, short and u16 two.
func accessBytes(what string) int {
	what = strings.TrimSuffix(what, "_d16_hi")
	what = strings.TrimSuffix(what, "_d16")
	last := what[strings.LastIndexByte(what, '_')+1:]
	if n, ok := strings.CutPrefix(last, "dwordx"); ok {
		words, _ := strconv.Atoi(n)
		return 4 * words
	}
	switch last {
	case "dword":
		return 4
	case "ushort", "sshort", "short":
		return 2
	case "ubyte", "sbyte", "byte":
		return 1
	}
	bits, err := strconv.Atoi(strings.TrimLeft(last, "bui"))
	if err != nil || bits > 1024 {
		return 0
	}
	return bits / 8
}
