package codeobject

import "strings"

// simd describes the resources of one SIMD unit of a GPU. Sources: AMD's ISA documents and LLVM's AMDGPU usage guide.
type simd struct {
	vgprs   int  // a lane, for waves of its native size
	granule int  // unit in which vector registers are allocated
	waves   int  // maximum
	wave    int  // lanes to which vgprs refers
	lds     int  // bytes of local data share, for all SIMD units that share it
	units   int  // number of SIMD units that share it
	scalars bool // scalar registers limit the number of waves
}

// simds lists the SIMD units of targets by a prefix of the target's name. A longer prefix precedes a shorter one that it
// begins with.
var simds = []struct {
	prefix string
	simd
}{
	{"gfx950", simd{512, 8, 8, 64, 160 << 10, 4, true}},
	{"gfx90a", simd{512, 8, 8, 64, 64 << 10, 4, true}},
	{"gfx94", simd{512, 8, 8, 64, 64 << 10, 4, true}},
	{"gfx1102", simd{1024, 16, 16, 32, 64 << 10, 2, false}},
	{"gfx1103", simd{1024, 16, 16, 32, 64 << 10, 2, false}},
	{"gfx115", simd{1024, 16, 16, 32, 64 << 10, 2, false}},
	{"gfx11", simd{1536, 24, 16, 32, 64 << 10, 2, false}},
	{"gfx12", simd{1536, 24, 16, 32, 64 << 10, 2, false}},
	{"gfx103", simd{1024, 16, 16, 32, 64 << 10, 2, false}},
	{"gfx101", simd{1024, 8, 20, 32, 64 << 10, 2, false}},
	{"gfx908", simd{256, 4, 10, 64, 64 << 10, 4, true}},
	{"gfx90", simd{256, 4, 10, 64, 64 << 10, 4, true}},
}

// partition describes one of the four schedulers of an NVIDIA multiprocessor, with a quarter of its registers. Source: the
// table of compute capabilities in the CUDA C++ programming guide.
type partition struct {
	warps  int // maximum
	shared int // bytes of shared memory of the whole multiprocessor
}

var partitions = map[string]partition{
	"sm_75": {8, 64 << 10}, "sm_80": {16, 164 << 10}, "sm_86": {12, 100 << 10}, "sm_87": {12, 164 << 10}, "sm_88": {12, 100 << 10},
	"sm_89": {12, 100 << 10}, "sm_90": {16, 228 << 10}, "sm_100": {16, 228 << 10}, "sm_103": {16, 228 << 10}, "sm_120": {12, 100 << 10},
	"sm_121": {12, 100 << 10},
}

// occupancy returns the number of warps of a kernel on the partition, and the resource that limits it.
func (p partition) occupancy(k Kernel) (warps int, limit string) {
	const schedulers, lanes, registers, granule = 4, 32, 16 << 10, 256 // registers are allocated to a warp
	warps, limit = p.warps, "hardware"
	if k.VGPRs > 0 {
		if n := registers / roundUp(k.VGPRs*lanes, granule); n < warps {
			warps, limit = n, "registers"
		}
	}
	if k.LDS > 0 && k.MaxThreads > 0 {
		if n := p.shared / k.LDS * roundUp(k.MaxThreads, lanes) / lanes / schedulers; n < warps {
			warps, limit = n, "shared memory"
		}
	}
	return warps, limit
}

// WavesPerSIMD returns how many waves of the kernel one SIMD unit of the target holds at a time, and the resource that
// limits them: "hardware", "VGPRs", "SGPRs" or "LDS". For a GPU of NVIDIA these are warps of a scheduler, and "hardware",
// "registers" or "shared memory". It returns 0 for an unknown target.
func (k Kernel) WavesPerSIMD(target string) (waves int, limit string) {
	if p, ok := partitions[strings.TrimRight(target, "af")]; ok {
		return p.occupancy(k)
	}
	for _, s := range simds {
		if strings.HasPrefix(target, s.prefix) {
			return s.occupancy(k)
		}
	}
	return 0, ""
}

// occupancy returns the number of waves of a kernel on the unit, and the resource that limits it.
func (s simd) occupancy(k Kernel) (waves int, limit string) {
	waves, limit = s.waves, "hardware"
	lower := func(n int, why string) {
		if n < waves {
			waves, limit = n, why
		}
	}
	vgprs, granule := s.vgprs, s.granule
	if k.Wave > s.wave { // a wave of 64 lanes takes two registers of a unit with 32 lanes
		vgprs, granule = vgprs/2, granule/2
	}
	if k.VGPRs > 0 {
		lower(vgprs/roundUp(k.VGPRs, granule), "VGPRs")
	}
	if s.scalars {
		lower(wavesBySGPRs(k.SGPRs), "SGPRs")
	}
	if k.LDS > 0 && k.Wave > 0 {
		groups := s.lds / k.LDS
		lower(groups*roundUp(k.MaxThreads, k.Wave)/k.Wave/s.units, "LDS")
	}
	return waves, limit
}

// wavesBySGPRs returns the number of waves for a number of scalar registers on GFX8 and GFX9. Later generations have no
// such limit.
func wavesBySGPRs(n int) int {
	switch {
	case n <= 80:
		return 10
	case n <= 88:
		return 9
	case n <= 100:
		return 8
	}
	return 7
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
