package watch_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/watch"
	"github.com/aiter-go/aiter/jit"
)

// patience bounds waits that end at once if the test succeeds.
const patience = 30 * time.Second

// quiet is how long to wait for a change that must not come.
const quiet = 300 * time.Millisecond

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// do runs steps that must not fail.
func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// tree is a source tree with a file, a symlink to a file, one to a folder, a
// name that must stay absent, a glob, and a folder.
func tree(t *testing.T) (string, jit.Inputs) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	do(t, err)
	in := func(name string) string { return filepath.Join(root, name) }
	write(t, in("src/a.cpp"), "a")
	write(t, in("src/b.cpp"), "b")
	write(t, in("far/deep/real.h"), "real")
	write(t, in("far/sys/s.h"), "s")
	write(t, in("loose/x.h"), "x")
	do(t, os.Symlink("../far/deep/real.h", in("src/link.h")), os.Symlink("far/sys", in("sys")))
	return root, jit.Inputs{
		Files: map[string]string{
			in("src/a.cpp"): sum("a"), in("src/link.h"): sum("real"), in("sys/s.h"): sum("s"), in("loose/x.h"): sum("x"),
			in("src/shadow.h"): jit.Absent, in("no/such/folder.h"): jit.Absent,
		},
		Globs:   []jit.Glob{{Root: root, Pattern: "src/*.cpp", Matches: []string{"src/a.cpp", "src/b.cpp"}}},
		Folders: []string{in("loose")},
	}
}

// edits returns changes of the tree and the reports that they must cause.
func edits(t *testing.T, root string) []struct {
	name string
	do   func()
	want string
} {
	in := func(name string) string { return filepath.Join(root, name) }
	return []struct {
		name string
		do   func()
		want string
	}{
		{"written in place", func() { write(t, in("src/a.cpp"), "a2") }, "changed src/a.cpp"},
		{"replaced by a rename", func() { write(t, in("src/a.tmp"), "a3"); do(t, os.Rename(in("src/a.tmp"), in("src/a.cpp"))) },
			"changed src/a.cpp"},
		{"saved as vim does", func() {
			do(t, os.Rename(in("src/a.cpp"), in("src/a.cpp~")))
			write(t, in("src/a.cpp"), "a4")
			do(t, os.Remove(in("src/a.cpp~")))
		}, "changed src/a.cpp"},
		{"touched", func() { do(t, os.Chtimes(in("src/a.cpp"), time.Now(), time.Now())) }, ""},
		{"identical text written again", func() { write(t, in("src/a.cpp"), "a4") }, ""},
		{"a file that no build reads", func() { write(t, in("src/unused.h"), "u") }, ""},
		{"a name that shadows", func() { write(t, in("src/shadow.h"), "!") }, "appeared src/shadow.h"},
		{"removed again", func() { do(t, os.Remove(in("src/shadow.h"))) }, "gone src/shadow.h"},
		{"folders of an absent name", func() { write(t, in("no/such/folder.h"), "!") }, "appeared no/such/folder.h"},
		{"and removed", func() { do(t, os.RemoveAll(in("no"))) }, "gone no/such/folder.h"},
		{"behind a symlink", func() { write(t, in("far/deep/real.h"), "real2") }, "changed src/link.h"},
		{"the symlink changed", func() {
			write(t, in("far/other.h"), "other")
			do(t, os.Remove(in("src/link.h")), os.Symlink(in("far/other.h"), in("src/link.h")))
		}, "changed src/link.h"},
		{"the symlink's new target", func() { write(t, in("far/other.h"), "other2") }, "changed src/link.h"},
		{"behind a linked folder", func() { write(t, in("far/sys/s.h"), "s2") }, "changed sys/s.h"},
		{"the link to a folder changed", func() {
			write(t, in("far/sys2/s.h"), "s3")
			do(t, os.Remove(in("sys")), os.Symlink("far/sys2", in("sys")))
		}, "changed sys/s.h"},
		{"a match of the glob", func() { write(t, in("src/c.cpp"), "c") }, "appeared src/c.cpp"},
		{"one match less", func() { do(t, os.Remove(in("src/b.cpp"))) }, "gone src/b.cpp"},
		{"a match's text", func() { write(t, in("src/c.cpp"), "c2") }, ""},
		{"in the folder", func() { write(t, in("loose/x.h"), "x2") }, "changed loose/x.h"},
		{"new below the folder", func() { write(t, in("loose/new/deep/y.h"), "y") }, "appeared loose/new/deep/y.h"},
		{"an edit there", func() { write(t, in("loose/new/deep/y.h"), "y2") }, "changed loose/new/deep/y.h"},
		{"an editor's hidden file", func() { write(t, in("loose/.y.h.swp"), "y") }, ""},
		{"a folder renamed", func() { do(t, os.Rename(in("src"), in("src.old"))) }, "gone src/a.cpp; gone src/c.cpp; gone src/link.h"},
		{"and another in its place", func() { write(t, in("src/a.cpp"), "a5") }, "appeared src/a.cpp"},
		{"an edit in it", func() { write(t, in("src/a.cpp"), "a6") }, "changed src/a.cpp"},
		{"a folder removed and created again at once", func() {
			do(t, os.RemoveAll(in("src")))
			write(t, in("src/a.cpp"), "a7")
		}, "changed src/a.cpp"},
		{"an edit in that", func() { write(t, in("src/a.cpp"), "a8") }, "changed src/a.cpp"},
		{"the whole tree replaced", func() {
			do(t, os.CopyFS(root+".new", os.DirFS(root)))
			write(t, root+".new/src/a.cpp", "a9")
			do(t, os.Rename(root, root+".old"), os.Rename(root+".new", root))
		}, "changed src/a.cpp"},
		{"an edit in the new one", func() { write(t, in("far/sys2/s.h"), "s4") }, "changed sys/s.h"},
	}
}

// next returns the next changes as text, "" if none come within limit.
func next(t *testing.T, w *watch.Watcher, root string, limit time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	changes, err := w.Next(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	var words []string
	for _, c := range changes {
		words = append(words, c.What+" "+strings.TrimPrefix(c.Path, root+"/"))
	}
	return strings.Join(words, "; ")
}

// waits reports whether a goroutine is in Watcher.await.
func waits() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "watch.(*Watcher).await(")
}

// nextOf is like next and calls do while the watcher waits already, so that an event or a
// periodic check must find the change.
func nextOf(t *testing.T, w *watch.Watcher, root string, limit time.Duration, do func()) string {
	t.Helper()
	got := make(chan string, 1)
	go func() { got <- next(t, w, root, limit) }()
	for end := time.Now().Add(limit); !waits() && len(got) == 0 && time.Now().Before(end); {
		runtime.Gosched()
	}
	do()
	return <-got
}

func TestEdits(t *testing.T) {
	for name, opts := range map[string]watch.Options{
		"events":  {Every: time.Hour}, // no periodic check: events must suffice
		"polling": {Poll: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			root, inputs := tree(t)
			w := watch.New(opts)
			defer w.Close()
			w.Set(jit.Request{}, inputs)
			if got := next(t, w, root, quiet); got != "" {
				t.Fatalf("before any edit: %s", got)
			}
			for _, e := range edits(t, root) {
				limit := patience
				if e.want == "" {
					limit = quiet
				}
				if got := nextOf(t, w, root, limit, e.do); got != e.want {
					t.Errorf("%s: got %q, want %q", e.name, got, e.want)
				}
			}
		})
	}
}

// Next reports changes from before its call together, also those from before Set.
func TestChangesBetweenCallsOfNext(t *testing.T) {
	root, inputs := tree(t)
	w := watch.New(watch.Options{Every: time.Hour})
	defer w.Close()
	write(t, filepath.Join(root, "src/a.cpp"), "edited before")
	w.Set(jit.Request{Module: "module_m"}, inputs)
	w.Set(jit.Request{Module: "module_n"}, inputs)
	ctx := t.Context()
	changes, err := w.Next(ctx)
	if err != nil || len(changes) != 1 || len(changes[0].For) != 2 {
		t.Errorf("got %v, %v, want one change that concerns both", changes, err)
	}
	write(t, filepath.Join(root, "src/a.cpp"), "a")
	write(t, filepath.Join(root, "loose/x.h"), "x2")
	if got := next(t, w, root, patience); got != "changed loose/x.h; changed src/a.cpp" {
		t.Error(got)
	}
	w.Forget(jit.Request{Module: "module_m"})
	write(t, filepath.Join(root, "src/a.cpp"), "a2")
	changes, err = w.Next(ctx)
	if err != nil || len(changes) != 1 || !slices.Equal(changes[0].For, []jit.Request{{Module: "module_n"}}) {
		t.Errorf("got %v, %v, want one change that concerns module_n", changes, err)
	}
}

// A file that is written in steps is reported once, when it is complete. The same holds for a file in a folder
// that is created while the Watcher waits for another file.
func TestSlowWriter(t *testing.T) {
	for name, want := range map[string]string{"src/a.cpp": "changed src/a.cpp", "loose/new/y.h": "appeared loose/new/y.h; changed src/a.cpp"} {
		t.Run(name, func(t *testing.T) {
			root, inputs := tree(t)
			w := watch.New(watch.Options{Every: time.Hour, Settle: 200 * time.Millisecond})
			defer w.Close()
			w.Set(jit.Request{}, inputs)
			wrote := make(chan struct{})
			got := nextOf(t, w, root, patience, func() {
				write(t, filepath.Join(root, "src/a.cpp"), "first")
				go func() {
					defer close(wrote)
					for i := range 5 {
						time.Sleep(80 * time.Millisecond)
						path := filepath.Join(root, name)
						if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, fmt.Append(nil, i), 0o644)); err != nil {
							t.Error(err)
						}
					}
				}()
			})
			<-wrote
			if again := next(t, w, root, quiet); got != want || again != "" {
				t.Errorf("got %q, then %q", got, again)
			}
		})
	}
}

// If the kernel's queue overflows, events are lost and changes are not.
func TestOverflow(t *testing.T) {
	root, inputs := tree(t)
	w := watch.New(watch.Options{Every: time.Hour})
	defer w.Close()
	w.Set(jit.Request{}, inputs)
	if got := next(t, w, root, quiet); got != "" {
		t.Fatal(got)
	}
	// No call of Next reads events now: unrelated files make the queue (16384 by default)
	// overflow.
	queue, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	do(t, err)
	var size int
	if _, err := fmt.Sscan(string(queue), &size); err != nil {
		t.Fatal(err)
	}
	for i := range size/2 + 500 { // each creates and removes a name, so that the kernel cannot merge events
		name := filepath.Join(root, "src", fmt.Sprint("noise", i))
		f, err := os.Create(name)
		do(t, err)
		do(t, f.Close(), os.Remove(name))
	}
	write(t, filepath.Join(root, "src/a.cpp"), "in the noise")
	if got := next(t, w, root, patience); got != "changed src/a.cpp" {
		t.Errorf("got %q", got)
	}
	if got := next(t, w, root, quiet); got != "" {
		t.Errorf("then %q", got)
	}
	write(t, filepath.Join(root, "src/a.cpp"), "after it")
	if got := next(t, w, root, patience); got != "changed src/a.cpp" {
		t.Errorf("after the overflow: %q", got)
	}
}

// A large file in a folder is compared by size and time, an input of a build by content.
func TestLargeFile(t *testing.T) {
	root, inputs := tree(t)
	large := strings.Repeat("x", 5<<20)
	write(t, filepath.Join(root, "loose/data.bin"), large)
	write(t, filepath.Join(root, "loose/read.h"), large)
	inputs.Files[filepath.Join(root, "loose/read.h")] = sum(large)
	w := watch.New(watch.Options{Every: time.Hour})
	defer w.Close()
	w.Set(jit.Request{}, w.Current(inputs))
	if got := next(t, w, root, quiet); got != "" {
		t.Errorf("before any edit: %q", got)
	}
	write(t, filepath.Join(root, "loose/data.bin"), large+"y")
	if got := next(t, w, root, patience); got != "changed loose/data.bin" {
		t.Error(got)
	}
	do(t, os.Chtimes(filepath.Join(root, "loose/read.h"), time.Now(), time.Now()))
	if got := next(t, w, root, quiet); got != "" {
		t.Errorf("after a touch: %q", got)
	}
	do(t, os.Chtimes(filepath.Join(root, "loose/data.bin"), time.Now(), time.Now()))
	if got := next(t, w, root, patience); got != "changed loose/data.bin" {
		t.Errorf("its content was read: after a touch %q", got)
	}
}

// A folder of data does not keep the disk busy.
func TestManyFiles(t *testing.T) {
	const most = 20_000
	root := t.TempDir()
	first := filepath.Join(root, "00000")
	write(t, first, "")
	for i := 1; i < most+10; i++ {
		do(t, os.Link(first, filepath.Join(root, fmt.Sprintf("%05d", i))))
	}
	if got := watch.New(watch.Options{}).Current(jit.Inputs{Folders: []string{root}}); len(got.Files) != most {
		t.Errorf("%d files were checked, want %d", len(got.Files), most)
	}
}
