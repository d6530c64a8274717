//go:build linux

package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit/target"
)

// fakeCompiler answers like g++ and counts its calls in the file "calls" in its folder. Its commands name the program
// cc1plus in the same folder.
const fakeCompiler = `#!/bin/sh
here=$(dirname "$0")
echo call >>"$here/calls"
case "$*" in
*--version*) echo "g++ (Fake) 9.1.0" ;;
*-E*) printf '#include <...> search starts here:\n %s\nEnd of search list.\n' "$here/include" >&2 ;;
*) echo " $here/cc1plus -quiet $here/crt.o" >&2 ;;
esac
`

// fake installs the fake compiler in a new folder.
func fake(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "g++"), fakeCompiler, 0o755)
	write(t, filepath.Join(dir, "cc1plus"), "one", 0o755)
	write(t, filepath.Join(dir, "crt.o"), "start", 0o644)
	write(t, filepath.Join(dir, "include", "h.h"), "", 0o644)
	return dir
}

func findIn(t *testing.T, dir string, memo *filehash.Memo) *Toolchain {
	t.Helper()
	f := &Finder{Env: environment("CXX", filepath.Join(dir, "g++")), Memo: memo}
	tc, err := f.Find(context.Background(), parse(t, "cpu"))
	if err != nil {
		t.Fatal(err)
	}
	return tc
}

func TestSameFilesInOtherFolderAreSameToolchain(t *testing.T) {
	one, two := findIn(t, fake(t), nil), findIn(t, fake(t), nil)
	if one.Digest != two.Digest {
		t.Errorf("digests differ: %+v and %+v", one.Files, two.Files)
	}
}

// TestReplacedFilesMiss replaces files of a remembered compiler without changing paths and version.
func TestReplacedFilesMiss(t *testing.T) {
	for _, name := range []string{"g++", "cc1plus", "crt.o"} {
		t.Run(name, func(t *testing.T) {
			dir, memo := fake(t), filehash.Open("")
			before := findIn(t, dir, memo)
			path := filepath.Join(dir, name)
			write(t, path, string(read(t, path))+"#", 0o755)
			after := findIn(t, dir, memo)
			if after.Version != before.Version {
				t.Errorf("version is %s, was %s", after.Version, before.Version)
			}
			if after.Digest == before.Digest {
				t.Errorf("the digest is the same after %s changed", name)
			}
		})
	}
}

// waitSettled waits until every file and folder below dir is so old that its times are reliable.
func waitSettled(t *testing.T, dir string) {
	t.Helper()
	var newest time.Time
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if changed := time.Unix(info.Sys().(*syscall.Stat_t).Ctim.Unix()); changed.After(newest) {
			newest = changed
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(newest.Add(settled)) + time.Millisecond)
}

// TestKnownToolchainStartsNoProcess also checks that the compiler is queried again after a change of its folders.
func TestKnownToolchainStartsNoProcess(t *testing.T) {
	t.Parallel()
	dir := fake(t)
	write(t, filepath.Join(dir, "calls"), "", 0o644) // a new name would change the folder
	bystander := filepath.Join(dir, "include", "new.h")
	waitSettled(t, dir)
	memo := filehash.Open(filepath.Join(t.TempDir(), "memo"))
	first := findIn(t, dir, memo)
	asked := len(read(t, filepath.Join(dir, "calls")))
	if asked == 0 {
		t.Fatal("the fake compiler was not queried")
	}
	second := findIn(t, dir, memo)
	if again := len(read(t, filepath.Join(dir, "calls"))); again != asked {
		t.Errorf("a known compiler was queried again")
	}
	if first.Digest != second.Digest || !slices.Equal(first.Files, second.Files) || !slices.Equal(first.IncludeDirs, second.IncludeDirs) {
		t.Errorf("remembered %+v, found %+v", second, first)
	}
	write(t, bystander, "", 0o644)
	findIn(t, dir, memo)
	if again := len(read(t, filepath.Join(dir, "calls"))); again == asked {
		t.Error("the compiler was not queried again after a new file in a folder of headers")
	}
}

// wrapperFor returns a script that answers like a compiler in a root folder.
func wrapperFor(t *testing.T, mention, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g++")
	script := strings.Replace(fakeCompiler, `" $here/cc1plus -quiet $here/crt.o"`, `" `+program+` -quiet"`, 1)
	write(t, path, strings.Replace(script, "#!/bin/sh\n", "#!/bin/sh\n"+mention+"\n", 1), 0o755)
	return path
}

func TestWrapperRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	write(t, filepath.Join(root, "usr/bin/ld"), "the root's", 0o755) // this machine has a file of this name too
	write(t, filepath.Join(root, "usr/lib/real/cc1"), "cc1", 0o755)
	if err := os.Symlink("/usr/lib/real/cc1", filepath.Join(root, "usr/bin/cc1")); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	for _, c := range []struct{ name, mention, program, override, want string }{
		{"folder", "# bwrap --ro-bind " + root + " /", "/usr/bin/cc1", "", root},
		{"usr", "# bwrap --ro-bind " + root + "/usr /usr", "/usr/bin/ld", "", root},
		{"quoted", `ROOT="` + root + `"`, "/usr/bin/cc1", "", root},
		{"comment", "# aiter-root: " + root, "/usr/bin/cc1", "", root},
		{"override", "", "/usr/bin/cc1", root, root},
		{"second folder", "# " + elsewhere + " " + root, "/usr/bin/cc1", "", root},
		{"no root needed", "# " + elsewhere, "/bin/sh", "", ""},
		{"nowhere", "# " + elsewhere, "/usr/bin/cc1", "", "error"},
		{"wrong override", "# " + root, "/usr/bin/cc1", elsewhere, "error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &Finder{Env: environment("CXX", wrapperFor(t, c.mention, c.program), "AITER_TOOLCHAIN_ROOT", c.override)}
			tc, err := f.Find(context.Background(), parse(t, "cpu"))
			var lost *RootError
			if c.want == "error" {
				if !errors.As(err, &lost) || lost.Missing != c.program {
					t.Errorf("error is %v, want a RootError about %s", err, c.program)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.Root != c.want {
				t.Errorf("root is %q, want %q", tc.Root, c.want)
			}
		})
	}
}

func TestRelativeRootComment(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "root/usr/bin/cc1"), "cc1", 0o755)
	script := read(t, wrapperFor(t, "# aiter-root: ../root", "/usr/bin/cc1"))
	path := filepath.Join(dir, "bin", "g++")
	write(t, path, string(script), 0o755)
	link := filepath.Join(t.TempDir(), "linked")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	tc, err := (&Finder{Env: environment("CXX", link)}).Find(context.Background(), parse(t, "cpu"))
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "root"); tc.Root != want {
		t.Errorf("root is %q, want %q", tc.Root, want)
	}
}

func TestResolve(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(root, "usr/include/h.h"), "", 0o644)
	write(t, filepath.Join(outside, "mine.h"), "", 0o644)
	if err := os.Symlink("/usr/include/h.h", filepath.Join(root, "usr/link.h")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../..", filepath.Join(root, "usr/up")); err != nil {
		t.Fatal(err)
	}
	tc := &Toolchain{Root: root}
	header := filepath.Join(root, "usr/include/h.h")
	for p, want := range map[string]string{
		"/usr/include/h.h":               header,
		"/usr/lib/../include/h.h":        header,
		"/usr/link.h":                    header,
		"/usr/up/usr/include/h.h":        header, // ".." stops at the root
		"/usr/include/none.h":            filepath.Join(root, "usr/include/none.h"),
		"relative.h":                     "relative.h",
		filepath.Join(outside, "mine.h"): filepath.Join(outside, "mine.h"),
	} {
		if got := tc.Resolve(p); got != want {
			t.Errorf("Resolve(%q) = %q, want %q", p, got, want)
		}
	}
	if got := (&Toolchain{}).Resolve("/usr/include/h.h"); got != "/usr/include/h.h" {
		t.Errorf("without a root Resolve gives %q", got)
	}
}

func TestNotFound(t *testing.T) {
	empty := t.TempDir()
	write(t, filepath.Join(empty, "plain"), "", 0o644)
	for _, c := range []struct {
		target string
		env    []string
		looked []string
	}{
		{"gfx942", []string{"PATH", empty, "ROCM_PATH", empty}, []string{"ROCM_PATH=" + empty + ": no " + empty + "/bin/hipcc", "PATH: no hipcc",
			"/opt/rocm: no /opt/rocm/bin/hipcc"}},
		{"gfx942", []string{"HIPCC", empty + "/x", "ROCM_PATH", empty}, []string{"HIPCC=" + empty + "/x: no " + empty + "/x"}},
		{"gfx942", []string{"HIPCC", empty + "/plain"}, []string{"HIPCC=" + empty + "/plain: " + empty + "/plain is not executable"}},
		{"gfx942", []string{"HIPCC", empty}, []string{"HIPCC=" + empty + ": " + empty + " is not a file"}},
		{"sm_90", []string{"PATH", empty, "CUDA_HOME", empty}, []string{"CUDA_HOME=" + empty + ": no " + empty + "/bin/nvcc", "PATH: no nvcc",
			"/usr/local/cuda: no /usr/local/cuda/bin/nvcc"}},
		{"cpu", []string{"PATH", empty}, []string{"PATH: no c++", "PATH: no g++", "PATH: no clang++"}},
		{"cpu", []string{"CXX", "no-such++ -O2"},
			[]string{"CXX=no-such++ -O2: no no-such++ -O2 (name one program; put flags into the configuration)"}},
	} {
		_, err := (&Finder{Env: environment(c.env...)}).Find(context.Background(), parse(t, c.target))
		var missing *NotFoundError
		if !errors.As(err, &missing) {
			t.Errorf("%s with %v: error is %v", c.target, c.env, err)
			continue
		}
		if !slices.Equal(missing.Looked, c.looked) {
			t.Errorf("%s with %v searched %q, want %q", c.target, c.env, missing.Looked, c.looked)
		}
		if named := c.env[0] + "=" + c.env[1]; (missing.Named == named) != (c.env[0] == "HIPCC" || c.env[0] == "CXX") {
			t.Errorf("%s with %v: the compiler is named by %q", c.target, c.env, missing.Named)
		}
	}
	if _, err := (&Finder{}).Find(context.Background(), target.Target{}); err == nil {
		t.Error("the zero target has a compiler")
	}
}

func TestROCmHome(t *testing.T) {
	rocm := t.TempDir()
	write(t, filepath.Join(rocm, "bin/hipcc"), "#!/bin/sh\n", 0o755)
	f := &Finder{Env: environment("ROCM_PATH", t.TempDir(), "ROCM_HOME", rocm)}
	at, err := f.locate(target.HIP)
	if err != nil {
		t.Fatal(err)
	}
	if env := f.environ(target.HIP, at); lookupEnv(env, "ROCM_PATH") != rocm {
		t.Errorf("ROCM_PATH is %q, want the folder of hipcc, %s", lookupEnv(env, "ROCM_PATH"), rocm)
	}
}

// TestSettled: a change since shortly before the first query may be in one answer and not in another.
func TestSettled(t *testing.T) {
	began := time.Now()
	for before, want := range map[time.Duration]bool{10 * time.Second: true, time.Second: false, 0: false, -10 * time.Second: false} {
		r := &record{Watch: []stamp{{Path: "/none", CTime: -1}, {Path: "/some", CTime: began.Add(-before).UnixNano()}}}
		if got := r.settled(began); got != want {
			t.Errorf("changed %s before the first query: settled is %t, want %t", before, got, want)
		}
	}
}

// TestChangesWhileAskingAreNotRemembered has a compiler that changes a folder and then waits until the change is old.
func TestChangesWhileAskingAreNotRemembered(t *testing.T) {
	t.Parallel()
	dir, slow := fake(t), filepath.Join(t.TempDir(), "slow")
	write(t, slow, "", 0o644)
	write(t, filepath.Join(dir, "calls"), "", 0o644) // a new name would change the folder
	change := fmt.Sprintf("if [ -e %s ]; then touch $here/include; sleep %.1f; fi\necho call", slow,
		(settled + 100*time.Millisecond).Seconds())
	write(t, filepath.Join(dir, "g++"), strings.Replace(fakeCompiler, "echo call", change, 1), 0o755)
	waitSettled(t, dir)
	memo := filehash.Open("")
	findIn(t, dir, memo)
	asked := len(read(t, filepath.Join(dir, "calls")))
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	findIn(t, dir, memo)
	if again := len(read(t, filepath.Join(dir, "calls"))); again == asked {
		t.Error("an answer was remembered although a folder had changed meanwhile")
	}
}

// TestTargetQueryRunsInParallel makes the other answers wait for the query about the target. That query ends with
// a search that fails.
func TestTargetQueryRunsInParallel(t *testing.T) {
	dir := t.TempDir()
	path, pid := filepath.Join(dir, "hipcc"), filepath.Join(dir, "pid")
	write(t, path, "#!/bin/sh\ncase $* in *--offload-arch=*) echo $$ >"+pid+".new; mv "+pid+".new "+pid+"; exec sleep 60 ;; esac\n"+
		"until [ -e "+pid+" ]; do sleep 0.01; done\necho broken; exit 3\n", 0o755)
	f := &Finder{Env: environment("HIPCC", path), Timeout: 20 * time.Second}
	start := time.Now()
	_, err := f.Find(context.Background(), parse(t, "gfx942"))
	var probe *ProbeError
	if !errors.As(err, &probe) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error is %v, want a ProbeError with \"broken\"", err)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("took %s: the search waited for the query about the target", took)
	}
	if asked := strings.TrimSpace(string(read(t, pid))); runs(asked) {
		t.Errorf("the compiler %s still runs", asked)
	}
}

func TestEnvironIsComplete(t *testing.T) {
	all := func(name string) string { return "/value/of/" + name }
	f := &Finder{Env: all}
	for _, v := range target.Vendors() {
		for _, entry := range f.environ(v, place{}) {
			name, value, _ := strings.Cut(entry, "=")
			switch name {
			case "HCC_AMDGPU_TARGET": // independent of the machine's GPUs
				if value != anyArch {
					t.Errorf("%s compilers get %s", v, entry)
				}
			case "PATH", "HOME", "TMPDIR", "LC_ALL", "SOURCE_DATE_EPOCH", "LD_LIBRARY_PATH",
				"HIP_PLATFORM", "HIP_PATH", "HIP_CLANG_PATH", "HIP_DEVICE_LIB_PATH", "ROCM_PATH", "NVCC_CCBIN":
			default:
				t.Errorf("%s compilers get %s", v, name)
			}
		}
	}
	if env := (&Toolchain{}).Environ(); lookupEnv(env, "PATH") != defaultPath {
		t.Errorf("a toolchain without environment has %q", env)
	}
}
