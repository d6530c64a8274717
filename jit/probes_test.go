package jit

import (
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit/depfile"
)

func TestProbesIn(t *testing.T) {
	for _, tt := range []struct {
		text     string
		want     []probe
		computed bool
	}{
		{"", nil, false},
		{"#if __has_include(<a/b.h>)", []probe{{"a/b.h", false, true}}, false},
		{"#if defined(X) && __has_include ( \"c.h\" ) || __has_include_next(<d.h>)", []probe{{"c.h", true, true}, {"d.h", false, true}}, false},
		{"constexpr char x[] = {\n#embed \"e.bin\"\n}; // __has_embed(\"e.bin\")", []probe{{"e.bin", true, true}}, false},
		{"  #  include \"q.h\"\n#include <angled.h>\n#include MACRO\n#include\"tight.h\"", []probe{{"q.h", true, false}, {"tight.h", true, false}}, false},
		{"#if __has_include(MACRO)", nil, true},
		{"#if __has_include(\"open\n", nil, true},
		{"#if __has_include_next(<>)", nil, true},
		{"# define HAS(x) __has_include(x)", nil, true},
		{"#define HAS __has_include\n#if HAS(<a>)", nil, true},
		{"#define HAS __has_include(<a>)", []probe{{"a", false, true}}, false},
		{"#ifdef __has_include\n#if defined(__has_include) && defined __has_include", nil, false},
		{"#ifndef __has_include\n # define __has_include(...) 0\n#define __has_include 0", nil, false},
	} {
		if got, computed := probesIn([]byte(tt.text)); !slices.Equal(got, tt.want) || computed != tt.computed {
			t.Errorf("%q asks for %v, computed %v; want %v, %v", tt.text, got, computed, tt.want, tt.computed)
		}
	}
}

func FuzzProbesIn(f *testing.F) {
	for _, seed := range []string{"", "#include \"a.h\"", "#if __has_include(<a>)", "__has_include(\"", "#include \"\x00\n\"", "__has_embed ( \"x\""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		probes, _ := probesIn(text)
		for _, p := range probes {
			if p.name == "" || strings.ContainsAny(p.name, "\n\t") {
				t.Errorf("%q cannot be a line of a dependency list", p.name)
			}
		}
	})
}

// failures are the words of real compilers.
var failures = []struct {
	words   string
	blames  bool
	missing []string
	certain bool
}{
	{"src/a.cpp:3:9: error: expected primary-expression before ';' token\n", true, nil, true},
	{"lang.hip(3): error: expected an expression\n  int x = ;\n\n1 error detected in the compilation of \"lang.hip\".\n", true, nil, true},
	{"a.cpp:2:10: fatal error: nope/miss.h: No such file or directory\n    2 | #include \"nope/miss.h\"\ncompilation terminated.\n", true, []string{"nope/miss.h"}, true},
	{"a.hip:2:10: fatal error: 'nope/miss.h' file not found\n", true, []string{"nope/miss.h"}, true},
	{"k.cu(1): catastrophic error: cannot open source file \"x.h\"\n", false, []string{"x.h"}, true},
	{"a.cpp:1:1: error: x\nld: cannot open linker script\n", true, nil, false},
	{"ptxas error   : Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)\n", true, nil, true},
	{"/usr/bin/ld: unit0.o: in function `f':\na.cpp:(.text+0x5): undefined reference to `g'\n", true, nil, true},
	{"ld.lld: error: undefined symbol: g\n", true, nil, true},
	{"g++: error: unrecognized command-line option '-fno-such'\n", true, nil, true},
	{"a.cpp:1:1: error: x\ng++: fatal error: Killed signal terminated program cc1plus\n", false, nil, true},
	{"a.cpp:9:1: fatal error: error writing to /x/cc.s: No space left on device\n", false, nil, true},
	{"a.cpp:1:1: internal compiler error: Segmentation fault\n", false, nil, true},
	{"a.cpp:1:10: fatal error: b.h: Permission denied\n", false, nil, true},
	{"g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory\n", false, []string{" execvp"}, true},
	{"clang++: error: unable to execute command: Killed\n", false, nil, true},
	{"a.cpp:1:1: error: x\n    1 | void f() { puts(\"out of memory, No space left on device\"); }\n", true, nil, true},
	{"something else\n", false, nil, true},
}

func TestBlame(t *testing.T) {
	for _, tt := range failures {
		if got := blamesInputs(outcome{output: []byte(tt.words), reason: "exit status 1"}); got != tt.blames {
			t.Errorf("%q blames the inputs: %v, want %v", tt.words, got, tt.blames)
		}
		if blamesInputs(outcome{output: []byte(tt.words), reason: "it was killed by a signal (killed)"}) {
			t.Errorf("%q, killed, blames the inputs", tt.words)
		}
		if !tt.blames {
			continue
		}
		names, certain := missingHeaders([]byte(tt.words))
		if !slices.Equal(names, tt.missing) || certain != tt.certain {
			t.Errorf("%q misses %q, certain %v; want %q, %v", tt.words, names, certain, tt.missing, tt.certain)
		}
	}
}

func FuzzCompilerOutput(f *testing.F) {
	for _, tt := range failures {
		f.Add([]byte(tt.words))
	}
	f.Add([]byte(". a.h\n.. b.h\n... c d.h\nx: error: y\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		blamesInputs(outcome{output: text, reason: "exit status 1"})
		missingHeaders(text)
		for _, p := range depfile.ParseTrace(text) {
			if p == "" || strings.Contains(p, "\n") {
				t.Errorf("%q cannot be a file", p)
			}
		}
	})
}

func TestFlagDirs(t *testing.T) {
	quote, system, after := flagDirs([]string{"-O1", "-isystem", "a/", "-isystemb", "-iquote", "./c", "-idirafter", "/d", "-DX", "-isystem"})
	if !slices.Equal(quote, []string{"c"}) || !slices.Equal(system, []string{"a", "b"}) || !slices.Equal(after, []string{"/d"}) {
		t.Errorf("got %q, %q, %q", quote, system, after)
	}
}
