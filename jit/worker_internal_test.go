package jit

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// TestWorkerArgs runs words through the shell of a worker.
func TestWorkerArgs(t *testing.T) {
	words := []string{"printf", `%s\n`, "", "a b", "$HOME", "it's", `"quoted"`, "-I" + workMark + "/src/include", workMark,
		"x=" + workMark + "/a b=" + workMark}
	out, err := exec.Command("/bin/sh", "-c", "work='/the folder'; "+workerArgs(&toolchain.Toolchain{}, words)).Output()
	want := strings.ReplaceAll(strings.Join(words[2:], "\n"), workMark, "/the folder") + "\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: got\n%s\nwant\n%s", err, out, want)
	}
	inRoot := &toolchain.Toolchain{Compiler: "/opt/wrappers/hipcc", Root: "/roots/rocm"}
	if got := workerArgs(inRoot, []string{"/opt/wrappers/hipcc", "-c"}); got != "hipcc -c" {
		t.Errorf("a compiler in a root folder runs as %q, want hipcc", got)
	}
}

// TestCompileScript runs a script as a worker does: with the toolchain that it names, and with another one.
func TestCompileScript(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "tool")
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(tool, "version 1")
	tc := &toolchain.Toolchain{Files: []toolchain.File{{Name: "commands"}, {Name: "tool", Path: tool}}, VersionLine: "tool 1"}
	compile := `printf 'unit.o: a.cpp \\\n sub/b.h missing.h\n' >../out/unit.d; printf '. sub/c.h\n' >"$CC_PRINT_HEADERS_FILE"`
	tools, err := readTools(tc, toolchain.Whole)
	if err != nil {
		t.Fatal(err)
	}
	script := compileScript(tc, tools, []string{"/bin/sh", "-c", compile})
	run := func() (string, error) {
		work := t.TempDir()
		for _, name := range []string{"a.cpp", "sub/b.h", "sub/c.h", "unread.h"} {
			write(filepath.Join(work, "src", name), name)
		}
		cmd := exec.Command("/bin/sh", "-c", script, "sh")
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		if err != nil {
			return string(out), err
		}
		list, err := os.ReadFile(filepath.Join(work, "out", readsFile))
		if err != nil {
			t.Fatal(err)
		}
		reads, err := parseReads(list, deps.Folders{Root: "/elsewhere"})
		if got := slices.Sorted(maps.Keys(reads.digests)); err != nil || !slices.Equal(got, []string{"a.cpp", "sub/b.h", "sub/c.h"}) {
			t.Errorf("reads %q, error %v", got, err)
		}
		return string(out), nil
	}
	if out, err := run(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write(tool, "version 2")
	out, err := run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != WorkerToolchainStatus || !strings.Contains(out, "another toolchain than 'tool 1'") {
		t.Errorf("with another toolchain: %v, %s", err, out)
	}
	write(tool, "version 1, longer")
	if _, err := run(); err == nil {
		t.Error("a longer file of the toolchain is accepted")
	}
}

func TestParseReads(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	on := deps.Folders{Root: "/home/me/tree", Headers: "/home/me/aiter", Name: "@aiter"}
	list := strings.ReplaceAll("/worker/1\nD  src/../a.cpp\nD  /worker/1/headers/csrc/x.h\nD  /usr/include/stdio.h\n", "D", digest)
	r, err := parseReads([]byte(list), on)
	got := slices.Sorted(maps.Keys(r.digests))
	if err != nil || !slices.Equal(got, []string{"/usr/include/stdio.h", "@aiter/csrc/x.h", "a.cpp"}) {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "/worker", "relative\n", "/w\nshort  a\n", "/w\n" + digest + " a\n", "/w\n\\" + digest + "  a\n",
		"/w\n" + digest + "  \n"} {
		if _, err := parseReads([]byte(text), on); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func FuzzParseReads(f *testing.F) {
	f.Add([]byte("/worker/1\n" + strings.Repeat("ab", 32) + "  src/a.cpp\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseReads(data, deps.Folders{Root: "/tree"})
		for _, digest := range r.digests {
			if err == nil && !isSHA256(digest) {
				t.Errorf("digest %q", digest)
			}
		}
	})
}

func TestRemoteFolders(t *testing.T) {
	for _, c := range []struct{ sources, include, want string }{
		{"src/a.cpp", "include", "include src"},
		{"k/fwd/a.hip k/bwd/b.hip", "csrc", "csrc k"},
		{"k/a.hip k/fwd/b.hip", "", "k"},
		{"ka/a.hip kb/b.hip", "", "ka kb"}, // their common folder is the whole tree
		{"a.cpp", "", "."},
	} {
		mod := &opconfig.Module{Include: strings.Fields(c.include)}
		for file := range strings.FieldsSeq(c.sources) {
			mod.Sources = append(mod.Sources, opconfig.Source{Files: []string{file}})
		}
		if got := strings.Join(remoteFolders(mod), " "); got != c.want {
			t.Errorf("%s with %s: %q, want %q", c.sources, c.include, got, c.want)
		}
	}
}

func TestCheckSent(t *testing.T) {
	sent := map[string]inputFile{"src/a.cpp": {digest: "1"}, "include/x/y.h": {digest: "2"}}
	for _, c := range []struct {
		name         string
		tree, system deps.List
		ok           bool
	}{
		{"all sent", deps.List{Files: []deps.File{{Path: "src/a.cpp", Digest: "1"}}, Absent: []deps.Absence{{Dir: "include", Name: "z.h"}}},
			deps.List{}, true},
		{"not sent", deps.List{Files: []deps.File{{Path: "src/b.h", Digest: "1"}}}, deps.List{}, false},
		{"other content", deps.List{Files: []deps.File{{Path: "src/a.cpp", Digest: "2"}}}, deps.List{}, false},
		{"sent and now absent", deps.List{Absent: []deps.Absence{{Dir: "include/x", Name: "y.h"}}}, deps.List{}, false},
		{"folder sent and now absent", deps.List{Absent: []deps.Absence{{Dir: "include", Name: "x"}}}, deps.List{}, false},
		{"computed name", deps.List{Folders: []deps.File{{Path: "include", Digest: "1"}}}, deps.List{}, false},
		{"computed name in the system", deps.List{}, deps.List{Untracked: []string{"a"}}, false},
	} {
		if err := checkSent(&c.tree, &c.system, sent); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestToolsOfHostPass checks that the host pass has one command for all targets: a worker compares only the files that they share.
func TestToolsOfHostPass(t *testing.T) {
	dir := t.TempDir()
	var files []toolchain.File
	for _, name := range []string{"compiler", "gfx90a", "gfx942"} {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, toolchain.File{Name: name, Path: p})
	}
	r := newRemote(struct{ Executor }{}, 1)
	digests := map[toolchain.Pass]map[string]bool{toolchain.Host: {}, toolchain.Device: {}}
	for _, own := range files[1:] {
		tc := &toolchain.Toolchain{
			HostDigest: "host", HostFiles: files[:1], Digest: own.Name, Files: []toolchain.File{files[0], own},
		}
		for pass := range digests {
			tools, err := r.toolsOf(tc, pass)
			if err != nil {
				t.Fatal(err)
			}
			digests[pass][tools.digest] = true
		}
	}
	if len(digests[toolchain.Host]) != 1 || len(digests[toolchain.Device]) != 2 {
		t.Errorf("digests of the files by pass %v; want one of the host pass and two of the device passes", digests)
	}
}
