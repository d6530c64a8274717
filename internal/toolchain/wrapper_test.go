//go:build linux

package toolchain

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/testenv"
)

// wrapped is a wrapper of this machine's g++ in a folder, and a change of the files that the wrapper uses.
type wrapped struct {
	name   string
	script string            // of g++ in the folder
	files  map[string]string // in the folder; programs if they begin with "#!"
	change func(t *testing.T, dir string)
}

// rewrite replaces one file of the folder.
func rewrite(name, text string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		write(t, filepath.Join(dir, name), text, modeOf(text))
	}
}

func modeOf(text string) os.FileMode {
	if strings.HasPrefix(text, "#!") {
		return 0o755
	}
	return 0o644
}

// specs returns GCC's specs with more options for the compiler proper.
func specs(t *testing.T, more string) string {
	t.Helper()
	text, err := exec.Command("g++", "-dumpspecs").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(text), "*cc1plus:\n", "*cc1plus:\n"+more+" ", 1)
}

const here = "here=$(dirname -- \"$(readlink -f -- \"$0\")\")\n"

func wrappers(t *testing.T) []wrapped {
	t.Helper()
	const pass = `exec g++ -DX=1 "$@"`
	return []wrapped{
		{"sourced script", here + `. "$here/flags.sh"; exec g++ $FLAGS "$@"`,
			map[string]string{"flags.sh": "FLAGS=-DX=1\n"}, rewrite("flags.sh", "FLAGS=-DX=2\n")},
		{"environment of a sourced script", here + `. "$here/env.sh"; exec g++ "$@"`,
			map[string]string{"env.sh": "export CPATH=/usr/include\n"}, rewrite("env.sh", "export CPATH=/usr/share\n")},
		{"second wrapper", here + `exec "$here/inner" "$@"`,
			map[string]string{"inner": "#!/bin/sh\n" + pass}, rewrite("inner", "#!/bin/sh\nexec g++ -O1 -DX=2 \"$@\"\n")},
		{"response file", here + `exec g++ @"$here/opts" "$@"`,
			map[string]string{"opts": "-DX=1\n"}, rewrite("opts", "-DX=2\n")},
		{"program in PATH", here + `PATH=$here/first:$here/second:$PATH; exec inner "$@"`,
			map[string]string{"first/other": "", "second/inner": "#!/bin/sh\n" + pass},
			rewrite("second/inner", "#!/bin/sh\nexec g++ -O1 -DX=2 \"$@\"\n")},
		{"program earlier in PATH", here + `PATH=$here/first:$here/second:$PATH; exec inner "$@"`,
			map[string]string{"first/other": "", "second/inner": "#!/bin/sh\n" + pass},
			rewrite("first/inner", "#!/bin/sh\nexec g++ -O1 -DX=2 \"$@\"\n")},
		{"specs in a -B folder", here + `exec g++ -B"$here/b/" "$@"`,
			map[string]string{"b/specs": specs(t, "-DX=1")}, rewrite("b/specs", specs(t, "-DX=2"))},
		{"new specs in a -B folder", here + `exec g++ -B"$here/b/" "$@"`,
			map[string]string{"b/other": ""}, rewrite("b/specs", specs(t, "-DX=2"))},
		{"file that appears", here + `[ ! -e "$here/local.sh" ] || . "$here/local.sh"; exec g++ $FLAGS "$@"`,
			nil, rewrite("local.sh", "FLAGS=-DX=2\n")},
		{"file that is removed", here + `[ ! -e "$here/debug" ] || FLAGS=-O0; exec g++ $FLAGS "$@"`,
			map[string]string{"debug": ""}, func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "debug")); err != nil {
					t.Fatal(err)
				}
			}},
		{"listed folder", here + `for f in "$here"/flags.d/*.sh; do . "$f"; done; exec g++ $FLAGS "$@"`,
			map[string]string{"flags.d/1.sh": "FLAGS=-DX=1\n"}, rewrite("flags.d/2.sh", "FLAGS=-DX=2\n")},
		{"link to a folder", here + `. "$(readlink "$here/current")/flags.sh"; exec g++ $FLAGS "$@"`,
			map[string]string{"one/flags.sh": "FLAGS=-DX=1\n", "two/flags.sh": "FLAGS=-DX=2\n"}, func(t *testing.T, dir string) {
				relink(t, filepath.Join(dir, "two"), filepath.Join(dir, "current"))
			}},
		{"assembler found earlier, times restored", here + `exec g++ -B"$here/b/" "$@"`,
			map[string]string{"b/other": ""}, restored("b/as", "#!/bin/sh\nexec as -mrelax-relocations=no \"$@\"\n")},
		{"listed folder, times restored", here + `for f in "$here"/flags.d/*.sh; do . "$f"; done; exec g++ $FLAGS "$@"`,
			map[string]string{"flags.d/1.sh": "FLAGS=-DX=1\n"}, restored("flags.d/2.sh", "FLAGS=-DX=2\n")},
		{"script that an assembler reads", here + `exec g++ -B"$here/b/" "$@"`,
			map[string]string{"b/as": "#!/bin/sh\n" + `. "$(dirname "$0")/asflags.sh"; exec as $FLAGS "$@"`, "b/asflags.sh": "FLAGS=\n"},
			rewrite("b/asflags.sh", "FLAGS=--compress-debug-sections=none\n")},
		{"script that a failing assembler reads", here + `exec g++ -B"$here/b/" "$@"`,
			map[string]string{"b/as": "#!/bin/sh\n" + `. "$(dirname "$0")/asflags.sh"; exit 1`, "b/asflags.sh": "FLAGS=\n"},
			rewrite("b/asflags.sh", "FLAGS=--compress-debug-sections=none\n")},
	}
}

// restored adds a file and sets the folder's modification time back.
func restored(name, text string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		before, err := os.Stat(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, text, modeOf(text))
		if err := os.Chtimes(filepath.Dir(path), before.ModTime(), before.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
}

func relink(t *testing.T, to, link string) {
	t.Helper()
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink(to, link); err != nil {
		t.Fatal(err)
	}
}

// install writes the wrapper and its files.
func (w wrapped) install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "g++"), "#!/bin/sh\n"+w.script+"\n", 0o755)
	for name, text := range w.files {
		write(t, filepath.Join(dir, name), text, modeOf(text))
	}
	if _, ok := w.files["one/flags.sh"]; ok {
		relink(t, filepath.Join(dir, "one"), filepath.Join(dir, "current"))
	}
	return dir
}

// settledWrappers installs wrappers and waits until their answers can be remembered.
func settledWrappers(t *testing.T, all []wrapped) (dirs []string) {
	t.Helper()
	for _, w := range all {
		dirs = append(dirs, w.install(t))
	}
	time.Sleep(settled + 100*time.Millisecond)
	return dirs
}

// TestWrapperInputs changes files that a wrapper uses. The remembered answers must not be used then.
func TestWrapperInputs(t *testing.T) {
	testenv.Long(t)
	t.Parallel()
	all := wrappers(t)
	dirs := settledWrappers(t, all)
	for i, w := range all {
		t.Run(w.name, func(t *testing.T) {
			dir, memo := dirs[i], filehash.Open("")
			before := findIn(t, dir, memo)
			w.change(t, dir)
			if after := findIn(t, dir, memo); after.Digest == before.Digest {
				t.Errorf("the digest is the same after the change; it is the same without remembered answers: %t",
					findIn(t, dir, nil).Digest == before.Digest)
			}
		})
	}
}

// TestDigestIsStable queries each compiler several times, with other folders and names of temporary files.
func TestDigestIsStable(t *testing.T) {
	for _, r := range reals() {
		t.Run(r.name, func(t *testing.T) {
			first := r.find(t)
			queries := 3
			if testing.Short() {
				queries = 1
			}
			for range queries {
				f := r.finder(t)
				f.Memo = nil
				env, temp := f.Env, filepath.Join(t.TempDir(), "a longer name")
				if err := os.Mkdir(temp, 0o755); err != nil {
					t.Fatal(err)
				}
				f.Env = func(name string) string {
					if name == "TMPDIR" {
						return temp
					}
					return env(name)
				}
				again, err := f.Find(t.Context(), parse(t, r.target))
				if err != nil {
					t.Fatal(err)
				}
				if again.Digest != first.Digest {
					t.Errorf("the digest changed: %+v", difference(first.Files, again.Files))
				}
				if again.Unknown != "" {
					t.Errorf("unknown: %s", again.Unknown)
				}
			}
		})
	}
}

// difference returns the parts that only one of the lists has.
func difference(a, b []File) []File {
	only := func(a, b []File) []File {
		return slices.DeleteFunc(slices.Clone(a), func(p File) bool { return slices.Contains(b, p) })
	}
	return append(only(a, b), only(b, a)...)
}

// TestHomeIsPartOfQuestion: a wrapper may read files of the user, so that a remembered answer is valid for one home folder.
func TestHomeIsPartOfQuestion(t *testing.T) {
	t.Parallel()
	w := wrapped{script: `. "$HOME/flags.sh"; exec g++ $FLAGS "$@"`, files: map[string]string{
		"one/flags.sh": "FLAGS=-DX=1\n", "two/flags.sh": "FLAGS=-DX=2\n",
	}}
	dir, memo := settledWrappers(t, []wrapped{w})[0], filehash.Open("")
	find := func(home string) string {
		f := &Finder{Env: environment("CXX", filepath.Join(dir, "g++"), "HOME", filepath.Join(dir, home)), Memo: memo}
		tc, err := f.Find(t.Context(), parse(t, "cpu"))
		if err != nil {
			t.Fatal(err)
		}
		return tc.Digest
	}
	if find("one") == find("two") {
		t.Error("the file of another user gives the same digest")
	}
}

// TestSameRootInOtherFolder checks that a wrapper and its root are the same toolchain in another checkout.
func TestSameRootInOtherFolder(t *testing.T) {
	wrapper := testenv.Tool(t, "hipcc")
	root, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(wrapper), "..", "rocm"))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "bin", "hipcc"), string(read(t, wrapper)), 0o755)
	relink(t, root, filepath.Join(elsewhere, "rocm"))
	var found []*Toolchain
	for _, path := range []string{wrapper, filepath.Join(elsewhere, "bin", "hipcc")} {
		tc, err := (&Finder{Env: environment("HIPCC", path)}).Find(t.Context(), parse(t, "gfx90a"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, tc)
	}
	if found[0].Digest != found[1].Digest || found[0].Root == found[1].Root {
		t.Errorf("roots %s and %s, the difference is %+v", found[0].Root, found[1].Root, difference(found[0].Files, found[1].Files))
	}
}
