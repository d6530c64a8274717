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

// WavesPerSIMD returns how many waves of the kernel one SIMD unit of the target holds at a time, and the resource that
// limits them: "hardware", "VGPRs", "SGPRs" or "LDS". It returns 0 for an unknown target.
func (k Kernel) WavesPerSIMD(target string) (waves int, limit string) {
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
