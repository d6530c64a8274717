package opconfig

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// matches reports whether pattern, a vendor or an architecture with wildcards, matches
// t. A pattern with a colon is compared with the features too.
func matches(pattern string, t target.Target) bool {
	name := t.Arch()
	if strings.Contains(pattern, ":") {
		name = t.String()
	}
	if ok, err := path.Match(pattern, name); ok && err == nil {
		return true
	}
	return pattern == string(t.Vendor())
}

func anyMatches(patterns []string, t target.Target) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, t) })
}

// targets reports whether the conditions on the target hold.
func (w When) targets(t target.Target) bool {
	return (len(w.Vendor) == 0 || slices.Contains(w.Vendor, string(t.Vendor()))) &&
		(len(w.Arch) == 0 || anyMatches(w.Arch, t))
}

// holds reports whether the conditions on the target and the toolchain hold. It parses the version
// only if there is a condition on the toolchain; the error is a *VersionError.
func (w When) holds(t target.Target, version string) (bool, error) {
	if !w.targets(t) || w.Toolchain == "" {
		return w.targets(t), nil
	}
	have, ok := parseVersion(version)
	if !ok {
		return false, &VersionError{Version: version, Condition: w.Toolchain}
	}
	for part := range strings.SplitSeq(w.Toolchain, ",") {
		c, ok := parseComparison(part)
		if !ok {
			return false, &VersionError{Version: version, Condition: part}
		}
		if !c.holds(have) {
			return false, nil
		}
	}
	return true, nil
}

// vendors returns the vendors that the conditions allow.
func (w When) vendors() []string {
	var list []string
	for _, v := range target.Vendors() {
		possible := slices.ContainsFunc(target.Known(), func(arch string) bool {
			t, err := target.Parse(arch)
			return err == nil && t.Vendor() == v && w.targets(t)
		})
		if possible {
			list = append(list, string(v))
		}
	}
	return list
}

// comparison is one condition on a version.
type comparison struct {
	op      string
	version []int
}

func parseComparison(s string) (comparison, bool) {
	s = strings.TrimSpace(s)
	for _, op := range []string{">=", "<=", "==", "!=", ">", "<"} {
		if v, found := strings.CutPrefix(s, op); found {
			v = strings.TrimSpace(v)
			version, ok := parseVersion(v)
			return comparison{op, version}, ok && strings.Trim(v, "0123456789.") == ""
		}
	}
	return comparison{}, false
}

// holds reports whether the version have fulfils the condition. Numbers that a version lacks are 0.
func (c comparison) holds(have []int) bool {
	order := compareVersions(have, c.version)
	switch c.op {
	case ">=":
		return order >= 0
	case "<=":
		return order <= 0
	case "==":
		return order == 0
	case "!=":
		return order != 0
	case ">":
		return order > 0
	}
	return order < 0
}

func compareVersions(a, b []int) int {
	for i := range max(len(a), len(b)) {
		if c := cmp.Compare(at(a, i), at(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

func at(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 0
}

// parseVersion reads the dotted numbers at the start of s: "5.2.21153-0" is 5.2.21153.
func parseVersion(s string) ([]int, bool) {
	if end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		s = s[:end]
	}
	var version []int
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, false
		}
		version = append(version, n)
	}
	return version, true
}
