//go:build linux

package jit_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

const mutationConfig = `
[module.module_demo]
include = ["first", "include"]
timeout = "5m"
flags = { common = ["-O1", "-isystem", "system"], cpu = ["-DVENDOR"], hip = ["-DHIP"], arch = { cpu = ["-DARCH"], "gfx*" = ["-DGFX"] } }
link_flags = { common = ["-Wl,-z,now"], cpu = ["-Wl,-z,relro"], cuda = ["-Wl,-z,defs"] }
[[module.module_demo.source]]
path = "src/a.cpp"
flags = ["-DOWN"]
[[module.module_demo.source]]
path = "src/b.cpp"
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
`

var mutationFiles = map[string]string{
	"config.toml": mutationConfig,
	"src/a.cpp": `#include "both.h"
#include "deep/outer.h"
#include "stdint.h"
#include <stddef.h>
#include <named.h>
#if __has_include("quoted.h")
#include "quoted.h"
#endif
#if __has_include(<angled.h>)
#include <angled.h>
#endif
#if __has_include("there.h")
#define THERE 1
#endif
extern "C" int demo_a() { return BOTH + OUTER + NAMED; }
` + demoOp,
	"src/b.cpp":            "#include \"both.h\"\nextern \"C\" int demo_b() { return BOTH; }\n",
	"include/both.h":       "#pragma once\n#define BOTH 1\n",
	"include/deep/outer.h": "#include \"inner.h\"\n#define OUTER INNER\n",
	"include/inner.h":      "#define INNER 1\n",
	"include/there.h":      "#error never included\n",
	"include/unused.h":     "#define UNUSED 3\n",
	"first/keep.h":         "",
	"system/named.h":       "#define NAMED 1\n",
}

// mutation is a change of one input.
type mutation struct {
	name string
	file string // file of the tree that gets the text; "" for another kind of change
	text string // "gone" removes the file
	env  map[string]string
	with func(*jit.Options)
}

func inConfig(name, before, after string) mutation {
	if strings.Count(mutationConfig, before) != 1 {
		panic("the configuration has not exactly one " + before)
	}
	return mutation{name: name, file: "config.toml", text: strings.Replace(mutationConfig, before, after, 1)}
}

// misses returns changes that have to cause a miss.
func misses() []mutation {
	var out []mutation
	for _, f := range []string{"src/a.cpp", "src/b.cpp", "include/both.h", "include/deep/outer.h", "include/inner.h", "system/named.h"} {
		out = append(out, mutation{name: "content of " + f, file: f, text: mutationFiles[f] + "// more\n"})
	}
	for _, f := range []string{
		"src/both.h", "first/both.h", "first/deep/outer.h", "src/deep/outer.h", "include/deep/inner.h", // shadow a tree header
		"src/stdint.h", "first/stdint.h", "include/stddef.h", "system/stddef.h", "include/named.h", // shadow a system header
		"src/quoted.h", "first/quoted.h", "system/quoted.h", "include/angled.h", "system/angled.h", // in __has_include, absent
	} {
		out = append(out, mutation{name: "new header " + f, file: f, text: "#include_next <" +
			strings.TrimPrefix(strings.TrimPrefix(f, filepath.Dir(f)+"/"), "deep/") +
			">\n#define BOTH 1\n#define OUTER 1\n#define INNER 1\n#define NAMED 1\n"})
	}
	out = append(out,
		mutation{name: "header of __has_include removed", file: "include/there.h", text: "gone"},
		mutation{name: "another compiler by CXX", env: map[string]string{"CXX": "g++"}},
	)
	return append(out,
		inConfig("common flags", "-O1", "-O2"),
		inConfig("vendor flags", "-DVENDOR", "-DVENDOR=2"),
		inConfig("architecture flags", "-DARCH", "-DARCH=2"),
		inConfig("source's flags", "-DOWN", "-DOWN=2"),
		inConfig("order of flags", `cpu = ["-DVENDOR"]`, `cpu = ["-UVENDOR", "-DVENDOR"]`),
		inConfig("schema", "(Tensor x)", "(Tensor y)"), // the link compares it with the signatures in C++
		inConfig("common link flags", "-Wl,-z,now", "-Wl,-z,lazy"),
		inConfig("vendor link flags", "-Wl,-z,relro", "-Wl,-z,norelro"),
		inConfig("order of include folders", `["first", "include"]`, `["include", "first"]`),
		inConfig("include folder gone", `["first", "include"]`, `["include"]`),
		inConfig("source gone", "[[module.module_demo.source]]\npath = \"src/b.cpp\"\n", ""),
		inConfig("source added before another", "[[module.module_demo.source]]\npath = \"src/b.cpp\"\n",
			"[[module.module_demo.source]]\npath = \"src/c.cpp\"\n[[module.module_demo.source]]\npath = \"src/b.cpp\"\n"),
	)
}

// hits returns changes that must not cause a miss.
func hits() []mutation {
	return []mutation{
		{name: "unread header", file: "include/unused.h", text: "#define UNUSED 4\n"},
		{name: "comment in the configuration", file: "config.toml", text: "# more\n" + mutationConfig},
		inConfig("flags of other vendors", "-DHIP", "-DHIP=2"),
		inConfig("flags of other architectures", "-DGFX", "-DGFX=2"),
		inConfig("link flags of other vendors", "-Wl,-z,defs", "-Wl,-z,lazy"),
		inConfig("time limit", `"5m"`, `"6m"`),
		{name: "include path by the environment", env: map[string]string{"CPATH": "/tmp", "CPLUS_INCLUDE_PATH": "/tmp",
			"GCC_EXEC_PREFIX": "/tmp/", "COMPILER_PATH": "/tmp", "LIBRARY_PATH": "/tmp", "CXXFLAGS": "-DX", "LD_RUN_PATH": "/tmp",
			"DEPENDENCIES_OUTPUT": "/tmp/d"}},
		{name: "language", env: map[string]string{"LANG": "de_DE.UTF-8", "LC_ALL": "tr_TR.UTF-8", "LANGUAGE": "de"}},
		{name: "user and place", env: map[string]string{"HOME": "/nonexistent", "TMPDIR": "/var/tmp", "USER": "another", "PWD": "/",
			"TERM": "dumb"}},
		{name: "time and log", env: map[string]string{"TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "12345", "AITER_LOG_LEVEL": "trace"}},
		{name: "no compiler: the recorded one is trusted", env: map[string]string{"CXX": "no-such-compiler"}},
		{name: "jobs", with: func(o *jit.Options) { o.Jobs = 7 }},
		{name: "time limits", with: func(o *jit.Options) { o.Timeout, o.LockTimeout = time.Hour, time.Hour }},
		{name: "observer", with: func(o *jit.Options) { o.Observer = new(recorder) }},
	}
}

func mutationFixture(t *testing.T) *fixture {
	t.Helper()
	b := newFixture(t)
	for name := range testFiles {
		if err := os.Remove(filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range mutationFiles {
		b.write(name, text)
	}
	b.write("src/c.cpp", "")
	return b
}

// apply makes the change and returns a function that reverts it.
func (b *fixture) apply(m mutation) (undo func()) {
	b.t.Helper()
	b.extra = m.env
	var restore []func() // this process's environment, which compilers must not inherit
	for name, value := range m.env {
		old, had := os.LookupEnv(name)
		restore = append(restore, func() {
			if _ = os.Unsetenv(name); had {
				_ = os.Setenv(name, old)
			}
		})
		_ = os.Setenv(name, value)
	}
	path := filepath.Join(b.root, m.file)
	switch {
	case m.file == "":
	case m.text == "gone":
		if err := os.Remove(path); err != nil {
			b.t.Fatal(err)
		}
	default:
		b.write(m.file, m.text)
	}
	return func() {
		b.extra = nil
		for _, f := range restore {
			f()
		}
		before, had := mutationFiles[m.file]
		switch {
		case had:
			b.write(m.file, before)
		case m.file != "":
			if err := os.Remove(path); err != nil {
				b.t.Fatal(err)
			}
			_ = os.Remove(filepath.Dir(path)) // if the change created the folder
		}
	}
}

func TestMutations(t *testing.T) {
	testenv.Long(t)
	b := mutationFixture(t)
	base := b.build()
	try := func(m mutation) jit.Status {
		t.Helper()
		undo := b.apply(m)
		defer undo()
		res, err := b.manager(func(o *jit.Options) {
			if m.with != nil {
				m.with(o)
			}
		}).Build(context.Background(), demo(t))
		if err != nil {
			return jit.Compiled // a shadowing header that does not compile is also a miss
		}
		return res[0].Status
	}
	for _, m := range misses() {
		if try(m) != jit.Compiled {
			t.Errorf("%s: a hit, want a miss", m.name)
		}
		if res := b.build(); res.Artifact.Digest != base.Artifact.Digest {
			t.Errorf("%s reverted: the library differs", m.name)
		}
	}
	e, err := b.manager().Explain(context.Background(), demo(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{"epoch", "target", "toolchain", "argv"} { // inputs that no mutation can change
		if value, ok := e.Units[0].Lines.Get(label); !ok || value == "" {
			t.Errorf("the key lacks %s", label)
		}
	}
	for _, m := range hits() {
		if try(m) != jit.Hit {
			t.Errorf("%s: a miss, want a hit", m.name)
		}
	}
}

// TestPathsTimesAndOrderHit changes the paths and times of files, and the order in which a folder
// lists them.
func TestPathsTimesAndOrderHit(t *testing.T) {
	b := mutationFixture(t)
	base := b.build()
	other := *b
	other.root = filepath.Join(t.TempDir(), "elsewhere", "tree")
	names := []string{"src/c.cpp"}
	for name := range mutationFiles {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Reverse(names)
	for i, name := range names {
		other.write(name, mutationFiles[name])
		when := time.Now().AddDate(-i, 0, 0)
		if err := os.Chtimes(filepath.Join(other.root, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	if res := other.build(); res.Status != jit.Hit || res.Artifact.Digest != base.Artifact.Digest {
		t.Errorf("another path, other times, another order: %s, library %s", res.Status, res.Artifact.Digest)
	}
	other.cacheDir = filepath.Join(t.TempDir(), "cache")
	if res := other.build(); res.Status != jit.Compiled || res.Artifact.Digest != base.Artifact.Digest {
		t.Errorf("built in another folder and cache: %s, library %s, want %s", res.Status, res.Artifact.Digest, base.Artifact.Digest)
	}
}
