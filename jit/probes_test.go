package jit

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/depfile"
)

func TestAsksOf(t *testing.T) {
	has := func(name string, quoted bool) probe { return probe{name: name, quoted: quoted, has: true} }
	quoted := func(name string) probe { return probe{name: name, quoted: true} }
	for _, tt := range []struct {
		text string
		want references
	}{
		{"", references{}},
		{"#if __has_include(<a/b.h>)", references{probes: []probe{has("a/b.h", false)}}},
		{"#if defined(X) && __has_include ( \"c.h\" ) || __has_include_next(<d.h>)", references{probes: []probe{has("c.h", true), {"d.h", false, true, true}}}},
		{"constexpr char x[] = {\n#embed \"e.bin\"\n}; // __has_embed(\"e.bin\")", references{probes: []probe{has("e.bin", true), quoted("e.bin")}}},
		{"  #  include \"q.h\"\n#include <angled.h>\n#include\"tight.h\"", references{probes: []probe{quoted("q.h"), quoted("tight.h")}}},
		{"#include MACRO", references{computedInclude: true}},
		{" /* x */ # import MACRO", references{computedInclude: true}},
		{"// as #include files do", references{}},
		{"#includes \"x.h\"\n#define include \"x.h\"", references{}},
		{"%:include \"a.h\"\n??=include_next \"b.h\"", references{probes: []probe{quoted("a.h"), quoted("b.h")}}},
		{"#in\\\nclude/* \n */ \\ \r\n \"a.h\"", references{probes: []probe{quoted("a.h")}}},
		{"#if __has_include(MACRO)", references{computedProbe: true}},
		{"#if __has_include(\"open\n", references{computedProbe: true}},
		{"#if __has_include_next(<>)", references{computedProbe: true}},
		{"# define HAS(x) __has_include(x)", references{computedProbe: true}},
		{"#define HAS __has_include\n#if HAS(<a>)", references{computedProbe: true}},
		{"#define HAS __has_include(<a>)", references{probes: []probe{has("a", false)}}},
		{"#ifdef __has_include\n#if defined(__has_include) && defined __has_include", references{}},
		{"#ifndef __has_include\n # define __has_include(...) 0\n#define __has_include 0", references{}},
		{`asm(".incbin \"a.bin\"");`, references{embeds: []embed{{"a.bin", false, true}}}},
		{`asm("x: .incbin\t \"a b.bin\", 4\n.INCLUDE \"c.s\"");`, references{embeds: []embed{{"a b.bin", false, true}, {"c.s", true, true}}}},
		{"asm(R\"(.incbin \"a.bin\")\");", references{embeds: []embed{{"a.bin", false, false}}}},
		{`asm(".incbin " NAME "\n");`, references{embeds: []embed{{" NAME ", false, false}}}},
		{`#define BIN ".incbin"`, references{embeds: []embed{{}}}},
		{"asm(\".incbin \" \"\\\"a.bin\\\"\");", references{embeds: []embed{{" ", false, false}}}},
		{"o.include(x); \"a.include\"; f().include = 1; \"\\n.include \\\"a\\\"\"", references{embeds: []embed{{"a", true, true}}}},
		{"// .incbin x\n/* .include \"y\" */ int n = 1'0; // .incbin \"z\"", references{}},
		{"char c = '\"'; // .incbin\n\"//\"; \".incbin\"", references{embeds: []embed{{}}}},
	} {
		if got := parseReferences([]byte(tt.text)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q asks for %+v, want %+v", tt.text, got, tt.want)
		}
	}
}

func FuzzAsksOf(f *testing.F) {
	for _, seed := range []string{"", "#include \"a.h\"", "#if __has_include(<a>)", "__has_include(\"", "#include \"\x00\n\"", "__has_embed ( \"x\"",
		"#\\\ninclude /*", "asm(\".incbin \\\"a\\\"\")", "R\"x(.include \"", "'\\", "//", "/*.incbin"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a := parseReferences(text)
		for _, p := range a.probes {
			if p.name == "" || strings.ContainsAny(p.name, "\n\t") {
				t.Errorf("%q cannot be a line of a dependency list", p.name)
			}
		}
		for _, e := range a.embeds {
			if strings.ContainsAny(e.name, "\n\t") {
				t.Errorf("%q cannot be a line of a dependency list", e.name)
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
		if got := isInputError(outcome{output: []byte(tt.words), reason: "exit status 1"}); got != tt.blames {
			t.Errorf("%q blames the inputs: %v, want %v", tt.words, got, tt.blames)
		}
		if isInputError(outcome{output: []byte(tt.words), reason: "it was killed by a signal (killed)"}) {
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
		isInputError(outcome{output: text, reason: "exit status 1"})
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
