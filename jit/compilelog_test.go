//go:build linux

package jit_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit"
)

// The log at level info has what a build compiles and its time, and nothing if the cache has all units.
func TestCompilesAreLogged(t *testing.T) {
	b := newFixture(t)
	build := func() string {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		_, _ = b.manager(func(o *jit.Options) { o.Logger = logger }).Build(t.Context(), demo(t)) // the test reads the log only
		return log.String()
	}
	const seconds = `" seconds=[0-9]+([.][0-9]{1,3})?\n`
	for _, step := range []struct {
		what, file, text string
		want             []string
	}{
		{"cold", "", "", []string{`"compiling 2 units of module_demo for cpu"\n`, `"compiled 2 units of module_demo for cpu` + seconds}},
		{"warm", "", "", nil},
		{"header of one unit", "include/only_a.h", "#define ONLY_A 7\n",
			[]string{`"compiling 1 unit of module_demo for cpu"\n`, `"compiled 1 unit of module_demo for cpu` + seconds}},
		{"broken unit", "src/b.cpp", "oops\n",
			[]string{`"compiling 1 unit of module_demo for cpu"\n`, `"the build of module_demo for cpu failed` + seconds}},
		{"the same failure, remembered", "", "", nil},
	} {
		if step.file != "" {
			b.write(step.file, step.text)
		}
		log := build()
		lines := strings.SplitAfter(strings.TrimSpace(log)+"\n", "\n")
		lines = lines[:len(lines)-1]
		if log == "" {
			lines = nil
		}
		if len(lines) != len(step.want) {
			t.Errorf("%s: got %d lines, want %d:\n%s", step.what, len(lines), len(step.want), log)
			continue
		}
		for i, want := range step.want {
			if !regexp.MustCompile("level=INFO msg=" + want + "$").MatchString(lines[i]) {
				t.Errorf("%s: line %d is %s, want %s", step.what, i, lines[i], want)
			}
		}
	}
}
