package target

import (
	"strconv"
	"strings"
)

// Known returns the architectures that Parse accepts without "!": LLVM's AMD GPUs
// from Vega on, nvcc's list from Maxwell on, and cpu. An installed compiler may
// support fewer.
func Known() []string {
	return []string{
		"gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90a", "gfx90c",
		"gfx940", "gfx941", "gfx942", "gfx950",
		"gfx1010", "gfx1011", "gfx1012", "gfx1013",
		"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036",
		"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
		"gfx1200", "gfx1201", "gfx1250", "gfx1251",
		"sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_70", "sm_72", "sm_75",
		"sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a",
		"sm_100", "sm_100a", "sm_100f", "sm_101", "sm_101a", "sm_101f", "sm_103", "sm_103a", "sm_103f",
		"sm_110", "sm_110a", "sm_110f", "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f",
		"cpu",
	}
}

// archFeatures returns the features that LLVM accepts in the name of a target.
func archFeatures(arch string) []string {
	switch arch {
	case "gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950":
		return []string{"sramecc", "xnack"}
	case "gfx900", "gfx902", "gfx904", "gfx909", "gfx90c", "gfx1010", "gfx1011", "gfx1012", "gfx1013":
		return []string{"xnack"}
	}
	return nil
}

// nearest returns the known architecture that shares most leading and trailing
// characters with arch; among equals, the one whose number is closest.
func nearest(arch string) string {
	best, bestShared, bestGap := "", -1, int64(0)
	for _, k := range Known() {
		shared, gap := shared(k, arch), number(k)-number(arch)
		gap = max(gap, -gap)
		if shared > bestShared || shared == bestShared && gap < bestGap {
			best, bestShared, bestGap = k, shared, gap
		}
	}
	return best
}

func shared(a, b string) int {
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	return head + tail
}

// number reads the hexadecimal digits of an architecture's name, 0 if it has none.
func number(arch string) int64 {
	n, err := strconv.ParseInt(strings.TrimLeft(arch, "gfxsm_"), 16, 64)
	if err != nil {
		return 0
	}
	return n
}
