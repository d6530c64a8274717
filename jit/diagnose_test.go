package jit

import (
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/depfile"
)

// failures are messages of real compilers.
var failures = []struct {
	words   string
	isInput bool
	missing []string
	certain bool
}{
	{"src/a.cpp:3:9: error: expected primary-expression before ';' token\n", true, nil, true},
	{"lang.hip(3): error: expected an expression\n  int x = ;\n\n1 error detected in the compilation of \"lang.hip\".\n", true, nil, true},
	{"a.cpp:2:10: fatal error: nope/miss.h: No such file or directory\n    2 | #include \"nope/miss.h\"\ncompilation terminated.\n",
		true, []string{"nope/miss.h"}, true},
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

func TestIsInputError(t *testing.T) {
	for _, tt := range failures {
		if got := isInputError(outcome{output: []byte(tt.words), reason: "exit status 1"}); got != tt.isInput {
			t.Errorf("%q: error of the input: %v, want %v", tt.words, got, tt.isInput)
		}
		if isInputError(outcome{output: []byte(tt.words), reason: "it was killed by a signal (killed)"}) {
			t.Errorf("%q of a killed compiler counts as an error of the input", tt.words)
		}
		if !tt.isInput {
			continue
		}
		names, certain := missingHeaders([]byte(tt.words))
		if !slices.Equal(names, tt.missing) || certain != tt.certain {
			t.Errorf("%q: missing %q, certain %v; want %q, %v", tt.words, names, certain, tt.missing, tt.certain)
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
