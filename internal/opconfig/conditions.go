package opconfig

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

func vendorNames() []string {
	var names []string
	for _, v := range target.Vendors() {
		names = append(names, string(v))
	}
	return names
}

// when reads the conditions of a source.
func (d *decoder) when(n *node, where string) When {
	var w When
	d.table(n, where, map[string]func(*node){
		"vendor":    func(n *node) { d.names(n, "vendor", d.vendor(&w.Vendor)) },
		"arch":      func(n *node) { d.names(n, "arch", d.pattern(&w.Arch, false)) },
		"toolchain": func(n *node) { w.Toolchain = d.toolchain(n) },
	})
	if w.Toolchain == "" {
		return w
	}
	if v := w.vendors(); len(v) != 1 {
		d.fail(n.fields["toolchain"].key,
			"a toolchain version needs a \"when\" for one vendor, and this one allows %s; add vendor = [\"hip\"] or the like",
			cmp.Or(strings.Join(v, ", "), "none"))
	}
	return w
}

func (d *decoder) vendor(to *[]string) func(string, *node) {
	return func(s string, n *node) {
		if !slices.Contains(vendorNames(), s) {
			d.unknown(n.at, "vendor "+quoteList([]string{s}, ""), s, vendorNames())
			return
		}
		*to = append(*to, s)
	}
}

// pattern reads a list of architectures, which may contain wildcards and, with vendors,
// vendors.
func (d *decoder) pattern(to *[]string, vendors bool) func(string, *node) {
	return func(s string, n *node) {
		if p, ok := d.checkPattern(s, n.at, vendors); ok {
			*to = append(*to, p)
		}
	}
}

// checkPattern returns a pattern in canonical form. It reports a pattern that matches no known
// target, unless the pattern ends with "!", as in target.Parse.
func (d *decoder) checkPattern(s string, offset int, vendors bool) (string, bool) {
	if vendors && slices.Contains(vendorNames(), s) {
		return s, true
	}
	if !d.plain(s, offset, "pattern") {
		return "", false
	}
	if hasMeta(s) {
		return d.checkGlob(s, offset)
	}
	t, err := target.Parse(s)
	if err == nil {
		return t.String(), true
	}
	e := &Error{Msg: err.Error(), cause: err}
	var unknown *target.UnknownError
	if vendors && !errors.As(err, &unknown) {
		e.Suggestion = nearestWord(s, append(vendorNames(), target.Known()...))
	}
	d.add(offset, e)
	return "", false
}

func (d *decoder) checkGlob(s string, offset int) (string, bool) {
	pattern, forced := strings.CutSuffix(s, "!")
	if _, err := path.Match(pattern, ""); err != nil {
		d.fail(offset, "bad pattern %q: brackets must be closed", s)
		return "", false
	}
	arch, _, _ := strings.Cut(pattern, ":")
	known := slices.ContainsFunc(target.Known(), func(k string) bool {
		ok, err := path.Match(arch, k)
		return ok && err == nil
	})
	if !known && !forced {
		d.fail(offset, "pattern %q matches no known target; write %q to keep it anyway", s, s+"!")
		return "", false
	}
	return pattern, true
}

// toolchain reads a list of comparisons such as ">=6.0,<8".
func (d *decoder) toolchain(n *node) string {
	s, ok := d.string(n, "toolchain")
	if !ok {
		return ""
	}
	offset := 0
	for part := range strings.SplitSeq(s, ",") {
		if _, ok := parseComparison(part); !ok {
			d.fail(rawOffset(d.doc.src, n.at, offset), "bad toolchain condition %q; write comparisons such as \">=6.0,<8\"", part)
			return ""
		}
		offset += len(part) + 1
	}
	return s
}
