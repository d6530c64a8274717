package deps

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseReferences(t *testing.T) {
	has := func(name string, quoted bool) probe { return probe{name: name, quoted: quoted, has: true} }
	quoted := func(name string) probe { return probe{name: name, quoted: true} }
	for _, tt := range []struct {
		text string
		want references
	}{
		{"", references{}},
		{"#if __has_include(<a/b.h>)", references{probes: []probe{has("a/b.h", false)}}},
		{"#if defined(X) && __has_include ( \"c.h\" ) || __has_include_next(<d.h>)",
			references{probes: []probe{has("c.h", true), {"d.h", false, true, true}}}},
		{"constexpr char x[] = {\n#embed \"e.bin\"\n}; // __has_embed(\"e.bin\")",
			references{probes: []probe{has("e.bin", true), quoted("e.bin")}}},
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
			t.Errorf("%q refers to %+v, want %+v", tt.text, got, tt.want)
		}
	}
}

func FuzzParseReferences(f *testing.F) {
	for _, seed := range []string{"", "#include \"a.h\"", "#if __has_include(<a>)", "__has_include(\"", "#include \"\x00\n\"",
		"__has_embed ( \"x\"",
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

func TestFlagFolders(t *testing.T) {
	quote, system, after := FlagFolders([]string{"-O1", "-isystem", "a/", "-isystemb", "-iquote", "./c", "-idirafter", "/d", "-DX",
		"-isystem"})
	if !slices.Equal(quote, []string{"c"}) || !slices.Equal(system, []string{"a", "b"}) || !slices.Equal(after, []string{"/d"}) {
		t.Errorf("got %q, %q, %q", quote, system, after)
	}
}
