package jit

import (
	"debug/elf"
	"time"

	"github.com/aiter-go/aiter/internal/deps"
)

// ShiftClock makes the clock that stamps files differ from the kernel's.
func ShiftClock(m *Manager, by func() time.Duration) {
	m.clock = func() deps.Instant {
		i := deps.Now()
		i.Stamp = i.Stamp.Add(by())
		return i
	}
}

// CheckLibrary and CheckObject check the output of a linker and of a compiler.
func CheckLibrary(path string) string             { return checkLibrary(path, elf.EM_NONE) }
func CheckObject(path string, device bool) string { return checkObject(path, device) }
