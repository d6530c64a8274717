//go:build linux

package jit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit"
)

// A unit gets the optional flags that its compiler accepts.
func TestOptionalFlags(t *testing.T) {
	b := newFixture(t)
	flags := `flags = { common = ["-O1"], optional = { cpu = ["-fno-such-flag", "-DONLY_A=40"] } }`
	b.write("config.toml", strings.Replace(testConfig, `flags = { common = ["-O1"] }`, flags, 1))
	b.write("include/only_a.h", "")
	res := b.build()
	if value, err := call(res.Artifact.Path); err != nil || value != 41 {
		t.Errorf("demo_a returns %d, %v; want 41, with -DONLY_A=40", value, err)
	}
	if x := b.explain().Units[0]; x.Status != jit.Hit || !strings.Contains(fmt.Sprint(x.Lines), "-DONLY_A=40") ||
		strings.Contains(fmt.Sprint(x.Lines), "-fno-such-flag") {
		t.Errorf("the key has the lines %v", x.Lines)
	}
}

// A build record has the flags that were accepted, so that a machine without compilers finds the same keys.
func TestOptionalFlagsOfPrebuiltCode(t *testing.T) {
	b := newFixture(t)
	flags := `flags = { common = ["-O1"], optional = { cpu = ["-fno-such-flag", "-DONLY_A=40"] } }`
	b.write("config.toml", strings.Replace(testConfig, `flags = { common = ["-O1"] }`, flags, 1))
	b.write("include/only_a.h", "")
	made := b.prebuild(demo(t))
	for name, change := range map[string]func(*jit.Options){"with a compiler": func(*jit.Options) {}, "without": withoutCompiler} {
		if got := b.build(b.over(made), change); got.Status != jit.Hit {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
