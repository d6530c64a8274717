package opconfig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/target"
)

// FuzzLoad checks that a load returns either a configuration whose modules and parts can be resolved, or
// only mistakes whose positions exist in the file.
func FuzzLoad(f *testing.F) {
	f.Add(full)
	f.Add(parts)
	f.Add(sized)
	f.Add(layouts)
	f.Add(inherited)
	f.Add(conditional)
	f.Add("\ufeff" + strings.ReplaceAll(full, "\n", "\r\n"))
	for _, m := range mistakes() {
		text, _ := split(m.text)
		f.Add(text)
	}
	f.Add("'\u3b40") // the file ends within a string, after a character of three bytes
	f.Add("\xbf0")   // invalid UTF-8 from its first byte on
	f.Fuzz(func(t *testing.T, text string) {
		files := tree(map[string]string{"config/main.toml": text, "config/other.toml": source("")})
		cfg, err := opconfig.Load(files, "config/main.toml", opconfig.Options{})
		if err == nil {
			resolveAll(t, cfg)
			return
		}
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok || cfg != nil {
			t.Fatalf("%T, config %v", err, cfg)
		}
		for _, e := range joined.Unwrap() {
			checkPosition(t, text, e)
		}
	})
}

func checkPosition(t *testing.T, text string, err error) {
	t.Helper()
	var e *opconfig.Error
	if !errors.As(err, &e) || e.Msg == "" {
		t.Fatalf("%T: %v", err, err)
	}
	if e.File != "config/main.toml" {
		return
	}
	lines := strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n")
	if e.Line < 1 || e.Line > len(lines) || e.Col < 1 || e.Col > utf8.RuneCountInString(lines[e.Line-1])+1 {
		t.Fatalf("no such position: %v\n%q", e, text)
	}
}

func resolveAll(t *testing.T, cfg *opconfig.Config) {
	t.Helper()
	for _, m := range cfg.Modules {
		if found, err := cfg.Module(m.Name); err != nil || found != m {
			t.Fatalf("%s: %v, %v", m.Name, found, err)
		}
		for _, op := range m.Ops {
			if _, found, err := cfg.Op(op.Name); err != nil || found.Schema.Name != op.Name {
				t.Fatalf("%s: %v, %v", op.Name, found, err)
			}
		}
		for _, name := range []string{"gfx942", "gfx90a:xnack-", "sm_90a", "cpu"} {
			on, err := target.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			if plan, err := m.Resolve(on, "7.0.2"); err == nil && len(plan.Units) == 0 {
				t.Fatalf("%s for %s: nothing to build", m.Name, name)
			}
			resolveParts(t, m, on)
		}
	}
}

// resolveParts checks that the part of every call is among the parts of the module, and that each
// part has its operators and values.
func resolveParts(t *testing.T, m *opconfig.Module, on target.Target) {
	t.Helper()
	for i := range m.Ops {
		op := &m.Ops[i]
		need, err := m.Parts(on, opconfig.Selection{Ops: []string{op.Name}})
		if err != nil || len(need) == 0 {
			t.Fatalf("%s of %s: parts %v, %v", op.Name, m.Name, need, err)
		}
		for _, size := range []int64{0, 4, 1 << 40} {
			call, err := m.Part(op, on, func(a opconfig.Axis) string {
				if a.BySize() {
					return a.Values[a.Ranges.Of(size)]
				}
				return a.Values[len(a.Values)-1]
			})
			if err != nil || !slices.Contains(need, call) {
				t.Fatalf("%s of %s: a call with %d needs %v, %v, the parts are %v", op.Name, m.Name, size, call, err, need)
			}
		}
		for _, s := range need {
			plan, err := m.ResolvePart(on, "7.0.2", s)
			if err == nil && (len(plan.Units) == 0 || !slices.Contains(plan.Ops, op.Name)) {
				t.Fatalf("%s of %s: %v has %+v", op.Name, m.Name, s, plan)
			}
			if all, wrong := m.ResolvePart(on, "7.0.2", opconfig.Part{Op: s.Op}); err != nil && wrong == nil && slices.Contains(all.Ops, op.Name) &&
				!byToolchain(m, on) {
				t.Fatalf("%s of %s: %v: %v, but all values have %+v", op.Name, m.Name, s, err, all)
			}
		}
	}
}

// byToolchain reports whether only Resolve can determine the sources of all values: a source has a condition on the toolchain, or
// the target has features.
func byToolchain(m *opconfig.Module, on target.Target) bool {
	return strings.Contains(on.String(), ":") || slices.ContainsFunc(m.Sources, func(s opconfig.Source) bool { return s.When.Toolchain != "" })
}
