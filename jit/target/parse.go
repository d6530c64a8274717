package target

import (
	"slices"
	"strings"
)

const expectedForm = "expected gfx942, gfx90a:xnack-, sm_90, sm_90a or cpu"

// Parse reads one target: "cpu", an NVIDIA architecture ("sm_90", "sm_90a") or an
// AMD one with optional features ("gfx942", "gfx90a:sramecc+:xnack-").
//
// A trailing "!" accepts any well-formed architecture, known or not.
// The error is an *UnknownError or a *SyntaxError.
func Parse(s string) (Target, error) {
	name, forced := strings.CutSuffix(strings.TrimSpace(s), "!")
	arch, rest, hasFeatures := strings.Cut(name, ":")
	vendor, reason := classify(arch)
	if reason != "" {
		return Target{}, &SyntaxError{Input: s, Reason: reason}
	}
	if !forced && !slices.Contains(Known(), arch) {
		return Target{}, &UnknownError{Name: name, Nearest: nearest(arch)}
	}
	if !hasFeatures {
		return Target{vendor: vendor, arch: arch}, nil
	}
	features, reason := parseFeatures(vendor, arch, rest, forced)
	if reason != "" {
		return Target{}, &SyntaxError{Input: s, Reason: reason}
	}
	return Target{vendor: vendor, arch: arch, features: features}, nil
}

// ParseList reads targets separated by commas or semicolons. It drops empty items and
// repetitions and keeps the order. The error is an *UnknownError or a *SyntaxError; a list
// without a target is a *SyntaxError. "native" is not a target; callers that allow it replace
// it first.
func ParseList(s string) ([]Target, error) {
	var list []Target
	for item := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ';' }) {
		if strings.TrimSpace(item) == "" {
			continue
		}
		t, err := Parse(item)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	if len(list) == 0 {
		return nil, &SyntaxError{Input: s, Reason: "no target in the list; " + expectedForm}
	}
	return list, nil
}

// classify returns the vendor of a well-formed architecture, or the reason of an error.
func classify(arch string) (Vendor, string) {
	switch {
	case arch == "cpu":
		return CPU, ""
	case arch == "native":
		return "", "native stands for the GPUs of this machine and cannot be used here; " + expectedForm
	case strings.HasPrefix(arch, "gfx"):
		return checkForm(HIP, wellFormedGFX(arch), "gfx is followed by major, minor and stepping, as in gfx942 or gfx1100")
	case strings.HasPrefix(arch, "sm_"):
		return checkForm(CUDA, wellFormedSM(arch), "sm_ is followed by the compute capability without its dot, as in sm_90 or sm_90a")
	case arch == "":
		return "", "empty; " + expectedForm
	case arch != strings.ToLower(arch):
		return "", "targets are written in lower case; " + expectedForm
	}
	return "", expectedForm
}

func checkForm(v Vendor, ok bool, reason string) (Vendor, string) {
	if ok {
		return v, ""
	}
	return "", reason
}

// wellFormedGFX reports whether a name has a decimal major version of one or two digits,
// then minor version and stepping of one lower-case hexadecimal digit each.
func wellFormedGFX(arch string) bool {
	d := strings.TrimPrefix(arch, "gfx")
	if len(d) < 3 || len(d) > 4 || d[0] == '0' {
		return false
	}
	return allIn(d[:len(d)-2], "0123456789") && allIn(d[len(d)-2:], "0123456789abcdef")
}

func wellFormedSM(arch string) bool {
	d := strings.TrimPrefix(arch, "sm_")
	if n := len(d); n > 0 && (d[n-1] == 'a' || d[n-1] == 'f') {
		d = d[:n-1]
	}
	return len(d) >= 2 && len(d) <= 3 && d[0] != '0' && allIn(d, "0123456789")
}

func allIn(s, set string) bool {
	return strings.Trim(s, set) == ""
}

// parseFeatures returns the features in canonical order, or the reason of an error.
func parseFeatures(v Vendor, arch, s string, forced bool) (string, string) {
	if v != HIP {
		return "", "only gfx targets have features"
	}
	features := strings.Split(s, ":")
	slices.Sort(features)
	for i, f := range features {
		name := strings.TrimRight(f, "+-")
		switch {
		case name != "xnack" && name != "sramecc" || len(f) != len(name)+1:
			return "", "a feature is xnack or sramecc followed by + or -, as in gfx90a:xnack-"
		case i > 0 && strings.HasPrefix(features[i-1], name):
			return "", "feature " + name + " is stated twice"
		case !forced && !slices.Contains(archFeatures(arch), name):
			return "", arch + " has no feature " + name
		}
	}
	return ":" + strings.Join(features, ":"), ""
}
