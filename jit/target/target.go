// Package target has the targets for which code is compiled: a GPU architecture with
// optional features, or the host processor.
package target

import (
	"fmt"
	"strconv"
	"strings"
)

// Vendor determines the toolchain and the runtime of a target.
type Vendor string

// The vendors: AMD through HIP, NVIDIA through CUDA, and the host processor.
const (
	HIP  Vendor = "hip"
	CUDA Vendor = "cuda"
	CPU  Vendor = "cpu"
)

// Vendors returns all vendors in order of preference.
func Vendors() []Vendor { return []Vendor{HIP, CUDA, CPU} }

// Target is a GPU architecture or the host processor. Targets are comparable; the order
// in which features are written does not matter. The zero value
// is not a target; see IsZero.
type Target struct {
	vendor   Vendor
	arch     string
	features string // ":sramecc+:xnack-", sorted by name
}

// Host returns the target of code that runs on the host processor: cpu.
func Host() Target { return Target{vendor: CPU, arch: string(CPU)} }

// Vendor returns the vendor, "" for the zero Target.
func (t Target) Vendor() Vendor { return t.vendor }

// Arch returns the architecture without features: gfx942, sm_90a, cpu.
func (t Target) Arch() string { return t.arch }

// Features returns the features as written after the architecture, in canonical
// order: ":xnack-", ":sramecc+:xnack-", or "" if the target states none.
func (t Target) Features() string { return t.features }

// WithoutFeatures returns the target of the same architecture that states no features.
func (t Target) WithoutFeatures() Target { return Target{vendor: t.vendor, arch: t.arch} }

// IsZero reports whether t is the zero Target.
func (t Target) IsZero() bool { return t == Target{} }

// String returns the canonical name. Parse reads it back; for an architecture that Known
// does not list, append "!".
func (t Target) String() string { return t.arch + t.features }

// MarshalText returns the canonical name.
func (t Target) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the output of MarshalText. It accepts a well-formed architecture
// that Known does not list, as Parse does with "!". Empty text is the zero Target.
func (t *Target) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*t = Target{}
		return nil
	}
	got, err := Parse(strings.TrimSuffix(string(b), "!") + "!")
	if err == nil {
		*t = got
	}
	return err
}

// Runs reports whether code built for t runs on the device that on describes.
//
//   - hip: the same architecture. A feature that t does not state matches any
//     device. A feature that t states must be stated equally by the device,
//     because the setting of a feature that the device does not state is unknown.
//   - cuda: the same major version and a minor version not above the device's;
//     sm_90a only on 9.0 itself, sm_100f on its family 10.x. Tegra parts
//     (sm_87 and the like) run only code made for them.
//   - cpu: cpu.
func (t Target) Runs(on Target) bool {
	if t.IsZero() || t.vendor != on.vendor {
		return false
	}
	if t.vendor == CUDA {
		return smRuns(t.arch, on.arch)
	}
	return t.arch == on.arch && featuresHold(t.features, on.features)
}

func featuresHold(want, have string) bool {
	for _, f := range splitFeatures(want) {
		if !strings.Contains(have+":", ":"+f+":") {
			return false
		}
	}
	return true
}

func splitFeatures(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ':' })
}

func smRuns(code, device string) bool {
	cMajor, cMinor, suffix := splitSM(code)
	dMajor, dMinor, _ := splitSM(device)
	same := cMajor == dMajor && cMinor == dMinor
	if suffix == "a" || isTegra(cMajor, cMinor) || isTegra(dMajor, dMinor) {
		return same
	}
	return cMajor == dMajor && cMinor <= dMinor
}

// isTegra reports whether a compute capability is that of an integrated GPU. NVIDIA does not guarantee
// binary compatibility between these and other GPUs of the same major version.
func isTegra(major, minor int) bool {
	switch major*10 + minor {
	case 53, 62, 72, 87, 88, 101:
		return true
	}
	return false
}

// splitSM splits a well-formed sm_ name: sm_100f is 10, 0, "f".
func splitSM(arch string) (major, minor int, suffix string) {
	digits := strings.TrimRight(strings.TrimPrefix(arch, "sm_"), "af")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1, -1, ""
	}
	return n / 10, n % 10, arch[len("sm_")+len(digits):]
}

// UnknownError is a well-formed architecture that is not in Known.
type UnknownError struct {
	Name    string // as written
	Nearest string // the most similar known architecture
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown target %q; the nearest known one is %s (write %q to try anyway)",
		e.Name, e.Nearest, e.Name+"!")
}

// SyntaxError is text that cannot be the name of a target.
type SyntaxError struct {
	Input  string // as written
	Reason string // the fault, and the valid forms
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("bad target %q: %s", e.Input, e.Reason)
}
