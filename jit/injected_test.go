//go:build linux

package jit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// wantValue builds and checks the value that the library returns.
func (b *fixture) wantValue(what string, want int) jit.Result {
	b.t.Helper()
	res, err := b.manager().Build(context.Background(), demo(b.t))
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	if got, err := call(res[0].Artifact.Path); err != nil || got != want {
		b.t.Errorf("%s: the library returns %d, %v; want %d", what, got, err, want)
	}
	return res[0]
}

// cacheFiles lists every file of the cache.
func (b *fixture) cacheFiles() (files []string) {
	b.t.Helper()
	err := b.eachFile("", func(p string) error { files = append(files, p); return nil })
	if err != nil {
		b.t.Fatal(err)
	}
	return append(files, filepath.Join(b.cacheDir, "CACHEDIR.TAG"))
}

// TestAnyFileDamaged flips a bit in each file of the cache in turn, and truncates some. The build
// has to return the right library.
func TestAnyFileDamaged(t *testing.T) {
	b := oneUnitFixture(t)
	first := b.wantValue("cold", 3)
	b.write("src/a.cpp", "#include \"both.h\"\nint x = ;\n") // the failure adds a record
	_ = b.buildErr()
	b.write("src/a.cpp", testFiles["src/a.cpp"])
	whole := b.copyCache()
	files := b.cacheFiles()
	if len(files) < 10 {
		t.Fatalf("the cache contains only %v", files)
	}
	random := newRandom(t)
	for _, file := range files {
		for _, d := range damages(random) {
			b.restore(whole)
			data, err := os.ReadFile(file)
			if err != nil || len(data) == 0 { // a lock file of the digest table
				continue
			}
			if err := os.WriteFile(file, d.do(data), 0o600); err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(b.cacheDir, file)
			if res := b.wantValue(rel+" "+d.name, 3); res.Artifact.Digest != first.Artifact.Digest {
				t.Errorf("%s %s: the library differs", rel, d.name)
			}
		}
	}
}

// damage changes the content of a file.
type damage struct {
	name string
	do   func([]byte) []byte
}

// damages returns changes at one random offset, or with -every-part at several. It returns a
// list in a fixed order, so that a seed determines the random numbers of each.
func damages(random *rand.Rand) []damage {
	flip := func(name string, at func(n int) int) damage {
		return damage{name, func(data []byte) []byte {
			data[at(len(data))] ^= 1 << random.IntN(8)
			return data
		}}
	}
	cut := func(name string, at func(n int) int) damage {
		return damage{name, func(data []byte) []byte { return data[:at(len(data))] }}
	}
	all := []damage{flip("flipped anywhere", random.IntN)}
	if *everyPart || random.IntN(3) == 0 {
		all = append(all, cut("cut anywhere", random.IntN))
	}
	if *everyPart {
		first, last := func(int) int { return 0 }, func(n int) int { return n - 1 }
		all = append(all, flip("flipped first", first), flip("flipped last", last), cut("emptied", first), cut("cut last", last))
		for i := range 10 {
			all = append(all, flip(fmt.Sprint("flipped again ", i), random.IntN), cut(fmt.Sprint("cut again ", i), random.IntN))
		}
	}
	return all
}

// TestUnreadableFiles mounts a file whose beginning the kernel refuses to read (EIO)
// over each file, as a faulty disk would.
func TestUnreadableFiles(t *testing.T) {
	b := oneUnitFixture(t)
	b.mounted("mode=0700,size=16m")
	first := b.wantValue("cold", 3)
	var failed int
	for _, file := range append(b.cacheFiles(), filepath.Join(b.root, "include/both.h"), filepath.Join(b.root, "src/a.cpp")) {
		if err := syscall.Mount("/proc/self/mem", file, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadFile(file); !errors.Is(err, syscall.EIO) {
			t.Fatalf("reading %s gives %v: no fault was injected", file, err)
		}
		res, err := b.manager().Build(context.Background(), demo(t))
		switch {
		case err == nil && res[0].Artifact.Digest != first.Artifact.Digest:
			t.Errorf("%s unreadable: the library differs", file)
		case err != nil:
			failed++
			var access *cache.AccessError
			var compile *jit.CompileError
			if !errors.As(err, &access) && !errors.As(err, &compile) && !errors.Is(err, syscall.EIO) {
				t.Errorf("%s unreadable: the error lacks the cause: %v", file, err)
			}
		}
		if err := syscall.Unmount(file, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			t.Fatal(err)
		}
		if res := b.wantValue(file+" readable again", 3); res.Artifact.Digest != first.Artifact.Digest {
			t.Errorf("%s readable again: the library differs", file)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(b.cacheDir, "v2", "quarantine", "*")); len(left) != 0 {
		t.Errorf("a fault of the disk quarantined %v", left)
	}
	b.noStaging()
	t.Logf("%d builds failed, the others worked around it", failed)
}

// TestDiskFullAtEachStep grows the cache's filesystem a little for each build, so that each
// build fails at another step.
func TestDiskFullAtEachStep(t *testing.T) {
	b := oneUnitFixture(t)
	b.queriesAnew = true // a memo with answers does not fit
	b.mounted("mode=0700,size=64k")
	for pages := 2; ; pages += 3 {
		if pages > 64 {
			t.Fatal("the build failed with every size of the filesystem")
		}
		room := fmt.Sprintf("mode=0700,size=%dk", 4*pages)
		if err := syscall.Mount("tmpfs", b.cacheDir, "tmpfs", syscall.MS_REMOUNT, room); err != nil {
			continue // too small for the existing files
		}
		m, err := b.open()
		if err == nil {
			_, err = m.Build(context.Background(), demo(t))
		}
		if err == nil {
			if pages == 2 {
				t.Error("the disk was never full: the test checks nothing")
			}
			break
		}
		if !errors.Is(err, syscall.ENOSPC) && !strings.Contains(err.Error(), "No space left") && !strings.Contains(err.Error(), "signal") {
			t.Errorf("with %s: the error does not name the full disk: %v", room, err)
		}
		if access := (*cache.AccessError)(nil); !errors.As(err, &access) && !strings.Contains(err.Error(), "signal") {
			t.Errorf("with %s: got %v, want an AccessError of the cache folder", room, err)
		}
		var ce *jit.CompileError
		if errors.As(err, &ce) && !ce.Remembered.IsZero() {
			t.Errorf("a full disk was remembered as a failure of the source: %v", err)
		}
	}
	b.wantValue("with sufficient space", 3)
	b.noTrace()
}

// TestFewDescriptors builds in processes that may open only a few files.
func TestFewDescriptors(t *testing.T) {
	b := oneUnitFixture(t)
	b.build()
	failed := 0
	for n := 5; n <= 29; n += 8 {
		b.write("include/only_a.h", fmt.Sprintf("#define ONLY_A %d\n", n))
		cmd := b.process()
		cmd.Env = append(cmd.Env, fmt.Sprint("AITER_TEST_NOFILE=", n))
		out, err := cmd.CombinedOutput()
		text := strings.ToLower(string(out))
		switch {
		case err == nil && !strings.Contains(text, fmt.Sprintf(" demo_a=%d\n", n+1)):
			t.Errorf("with %d descriptors: %s", n, out)
		case err != nil:
			failed++
			if !strings.Contains(text, "too many open files") {
				t.Errorf("with %d descriptors: %v: %s", n, err, out)
			}
		}
		b.wantValue(fmt.Sprintf("after %d descriptors", n), n+1)
		b.noTrace()
	}
	if failed == 0 {
		t.Error("no build failed: the test checks nothing")
	}
}

// TestTimesJump sets all file times in the cache and the tree to the past and to the future, as a
// wrong clock does.
func TestTimesJump(t *testing.T) {
	b := newFixture(t)
	first := b.wantValue("cold", 3)
	for _, by := range []time.Duration{-20 * 365 * 24 * time.Hour, 20 * 365 * 24 * time.Hour} {
		when := time.Now().Add(by)
		for _, dir := range []string{b.cacheDir, b.root} {
			err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
				return errors.Join(err, os.Chtimes(p, when, when))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if res := b.wantValue("times moved by "+by.String(), 3); res.Status != jit.Hit || res.Artifact.Digest != first.Artifact.Digest {
			t.Errorf("times moved by %s: %s", by, res.Status)
		}
		b.write("include/only_a.h", "#define ONLY_A 7\n")
		b.wantValue("edited with moved times", 8)
		b.write("include/only_a.h", testFiles["include/only_a.h"])
		b.wantValue("edit reverted", 3)
		store, err := cache.Open(b.cacheDir, cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Clean(cache.CleanRequest{OlderThan: 30 * 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		b.wantValue("after a clean of old entries", 3)
	}
}

// TestClockSetWhileCompiling changes a header after the compiler has read it, while
// the clock that stamps files is wrong.
func TestClockSetWhileCompiling(t *testing.T) {
	testenv.Long(t)
	for _, tt := range []struct {
		name  string
		known bool // from an earlier build
		start time.Duration
		end   time.Duration
	}{
		{"set back, header unknown", false, time.Hour, 0},
		{"set back, header known", true, time.Hour, 0},
		{"ahead of the stamps all along, header known", true, time.Hour, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := oneUnitFixture(t)
			header := filepath.Join(b.root, "include/only_a.h")
			once := filepath.Join(t.TempDir(), "once")
			edit := "case \"$*\" in *-MF*) " + realCompiler(t) + " \"$@\" || exit 1; test -e " + once + " || { : > " + once +
				"; printf '#define ONLY_A 7\\n' > " + header + "; }; exit 0;; esac"
			if tt.known {
				b.hook("")
				b.build()
				b.compiles()
				b.write("include/both.h", "#define BOTH 2\n")
			}
			want := map[bool]int{false: 8, true: 9}[tt.known]
			b.hook(edit)
			if tt.known {
				// The header is known under the new compiler's key too.
				_ = os.WriteFile(once, nil, 0o600)
				b.build()
				b.write("include/both.h", "#define BOTH 2 \n")
				_ = os.Remove(once)
				b.compiles()
			}
			m := b.manager()
			ended := func() bool { _, err := os.Stat(once); return err == nil }
			jit.ShiftClock(m, func() time.Duration {
				if ended() {
					return tt.end
				}
				return tt.start
			})
			res, err := m.Build(context.Background(), demo(t))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := call(res[0].Artifact.Path); err != nil || got != want {
				t.Errorf("the library returns %d, %v; want the value %d of the header on disk", got, err, want)
			}
			if n := b.compiles(); n != 2 {
				t.Errorf("%d compiles, want another one after the edit", n)
			}
		})
	}
}
