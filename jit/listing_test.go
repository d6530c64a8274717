//go:build linux

package jit_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit"
)

// TestComputedHasInclude adds files that a computed __has_include may name.
func TestComputedHasInclude(t *testing.T) {
	for name, text := range map[string]string{
		"macro":    "#define WHAT \"sub/what.h\"\n#if __has_include(WHAT)\n#include WHAT\n#endif\n",
		"argument": "#define HAS(x) __has_include(x)\n#if HAS(<sub/what.h>)\n#include <sub/what.h>\n#endif\n",
	} {
		t.Run(name, func(t *testing.T) {
			b := oneUnitFixture(t)
			b.write("late/sub/none", "")
			b.write("include/asks.h", text+"#ifndef WHAT_IS\n#define WHAT_IS 0\n#endif\n")
			b.write("src/a.cpp", "#include \"asks.h\"\nextern \"C\" int demo() { return WHAT_IS; }\n"+demoOp)
			b.expect("first", map[string]string{"src/a.cpp": ""})
			b.expect("again", nil)
			b.write("late/sub/none", "other text, the same names")
			b.expect("the same names", nil)
			b.write("late/sub/what.h", "#define WHAT_IS 1\n")
			x := b.explain().Units[0]
			if x.Reason != "header folder has other names: late" || labels(x.Changes) != "names in late" || x.Miss.Cause != jit.CauseHeader ||
				x.Miss.Path != "late" {
				t.Errorf("got the explanation %+v", x)
			}
			res := b.expect("header created", map[string]string{"src/a.cpp": ""})
			b.expect("again with the header", nil)
			in, err := b.manager().Inputs(context.Background(), res)
			if err != nil || !slices.Contains(in.Folders, filepath.Join(b.root, "late")) {
				t.Errorf("watched folders %v, %v", in.Folders, err)
			}
			if err := os.Remove(filepath.Join(b.root, "late/sub/what.h")); err != nil {
				t.Fatal(err)
			}
			b.expect("header removed again", nil)
		})
	}
}

// TestListingOfLinks checks that a listing follows symlinks and ends in spite of loops.
func TestListingOfLinks(t *testing.T) {
	b := oneUnitFixture(t)
	b.write("src/a.cpp", "#define WHAT <linked/what.h>\n#if __has_include(WHAT)\n#error found\n#endif\n"+demoOp)
	b.write("elsewhere/none", "")
	for link, to := range map[string]string{"late/linked": "../elsewhere", "late/loop": ".", "late/again": ".", "late/void": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(b.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	b.build()
	b.compiles()
	b.expect("again", nil)
	b.write("elsewhere/what.h", "")
	if err := b.buildErr(); err == nil || !strings.Contains(err.Error(), "error found") {
		t.Errorf("got %v, want the error directive", err)
	}
}
