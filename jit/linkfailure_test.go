//go:build linux

package jit_test

import (
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit"
)

// failedLink builds and checks that the link fails, and whether the failure comes from the cache.
func (b *fixture) failedLink(what string, remembered bool) *jit.CompileError {
	b.t.Helper()
	e, got, _ := b.failed()
	if e.Source != "" || got != remembered {
		b.t.Errorf("%s: remembered %v, want %v: %v", what, got, remembered, e)
	}
	return e
}

// TestFailedLinkIsRemembered checks that a failed link is remembered unless its flags name files.
func TestFailedLinkIsRemembered(t *testing.T) {
	b := oneUnitFixture(t)
	b.write("src/a.cpp", "int missing();\nint demo() { return missing(); }\n")
	linkFlags := func(flags string) {
		b.write("config.toml", oneUnit+"[module.module_demo.link_flags]\ncommon = ["+flags+"]\n")
	}
	linkFlags(`"-Wl,--no-undefined"`)
	first := b.failedLink("the first time", false)
	if again := b.failedLink("again", true); again.Output != first.Output {
		t.Errorf("remembered %q, want %q", again.Output, first.Output)
	}
	linkFlags(`"-Wl,--no-undefined", "-lm"`)
	b.failedLink("with a library", false)
	b.failedLink("with a library again", false)
}

// TestMissingLibrary creates a library after a link failed without it.
func TestMissingLibrary(t *testing.T) {
	b := oneUnitFixture(t)
	b.write("src/a.cpp", usesValue+demoOp)
	b.write("config.toml", oneUnit+"[module.module_demo.link_flags]\ncommon = [\"-L"+b.root+"/libs\", \"-lvalue\"]\n")
	if e := b.failedLink("without it", false); !strings.Contains(e.Output, "cannot find -lvalue") {
		t.Errorf("error is %v", e)
	}
	b.library("libs", 1)
	b.build()
}
