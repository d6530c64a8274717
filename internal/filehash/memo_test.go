//go:build linux

package filehash

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func hexSum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// later makes the memo treat every file as if its last change were long ago.
func later(m *Memo) *Memo {
	m.now = func() time.Time { return time.Now().Add(time.Hour) }
	return m
}

// disk returns a folder on a disk, where digests are remembered: temporary folders may be on tmpfs.
func disk(t *testing.T) string {
	t.Helper()
	for _, above := range []string{t.TempDir(), "/var/tmp"} {
		dir, err := os.MkdirTemp(above, "aiter-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if _, fs, _, err := Open("").mounts.stat(location{unix.AT_FDCWD, dir, 0}, dir); err == nil && kindOf(fs.magic) != foreign {
			return dir
		}
	}
	t.Skip("neither the temporary folder nor /var/tmp is on a disk; set TMPDIR")
	return ""
}

func digest(t *testing.T, m *Memo, path string) string {
	t.Helper()
	got, err := m.Digest(path)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDigestFollowsContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	m := later(Open(""))
	for _, text := range []string{"", "one", "two", strings.Repeat("x", 1<<20)} {
		write(t, path, text)
		if got := digest(t, m, path); got != hexSum(text) {
			t.Errorf("digest of %d bytes is %s, want %s", len(text), got, hexSum(text))
		}
	}
}

// TestSameSizeAndTime sets the modification time back, as a tool that restores times does.
func TestSameSizeAndTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	m := later(Open(""))
	then := time.Now().Add(-time.Hour)
	for _, text := range []string{"aaaa", "bbbb"} {
		write(t, path, text)
		time.Sleep(20 * time.Millisecond) // more than the kernel's clock tick
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		if got := digest(t, m, path); got != hexSum(text) {
			t.Errorf("digest of %q is %s, want %s", text, got, hexSum(text))
		}
	}
}

func TestRecentFilesAreNotRemembered(t *testing.T) {
	path := filepath.Join(disk(t), "f")
	write(t, path, "x")
	m := Open("")
	digest(t, m, path)
	if len(m.fresh) != 0 {
		t.Error("a file that changed within the racy window was remembered")
	}
	digest(t, later(m), path)
	if len(m.fresh) != 1 {
		t.Error("an old file was not remembered")
	}
}

func TestDigestErrors(t *testing.T) {
	dir := t.TempDir()
	m := Open("")
	if _, err := m.Digest(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	var irregular *NotRegularError
	if _, err := m.Digest(dir); !errors.As(err, &irregular) || !irregular.Mode.IsDir() {
		t.Errorf("folder: %v", err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Digest(loop); err == nil {
		t.Error("loop of links: no error")
	}
}

func TestSaveAndOpen(t *testing.T) {
	dir := disk(t)
	file, kept := filepath.Join(dir, "f"), filepath.Join(dir, "sub", "memo")
	write(t, file, "content")
	m := later(Open(kept))
	digest(t, m, file)
	m.Put("key", "value")
	m.Put("", "empty key")
	if err := m.Save(); err != nil {
		t.Fatal(err)
	}
	again := Open(kept)
	for key, want := range map[string]string{"key": "value", "": "empty key"} {
		if got, ok := again.Get(key); !ok || got != want {
			t.Errorf("Get(%q) = %q, %v", key, got, ok)
		}
	}
	if _, ok := again.Get(file); ok {
		t.Error("a file's digest answers to Get")
	}
	id, fs, err := again.mounts.statFile(file)
	if err != nil {
		t.Fatal(err)
	}
	id, _ = fs.memoizable(id)
	if got, ok := again.recall(file, id); !ok || got != hexSum("content") {
		t.Errorf("recalled %q, %v", got, ok)
	}
}

func TestSaveWritesOnlyNewEntries(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "memo")
	m := Open(kept)
	m.Put("a", "1")
	if err := m.Save(); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(kept)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Memo{m, Open(kept)} {
		m.Put("a", "1")
		if err := m.Save(); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := os.Stat(kept); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was written again: %v", err)
	}
}

func TestSaveMerges(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "memo")
	var wg sync.WaitGroup
	for i := range 8 {
		m := Open(kept)
		m.Put(fmt.Sprint("key", i), fmt.Sprint(i))
		wg.Go(func() {
			if err := m.Save(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	m := Open(kept)
	for i := range 8 {
		if got, ok := m.Get(fmt.Sprint("key", i)); !ok || got != fmt.Sprint(i) {
			t.Errorf("key%d: %q, %v", i, got, ok)
		}
	}
	if left, _ := filepath.Glob(kept + ".tmp-*"); len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestFullMemoKeepsUsedEntries(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "memo")
	entries := map[string][]byte{}
	for i := range maxEntries {
		entries[kindValue+fmt.Sprint(i)] = []byte("old")
	}
	write(t, kept, string(encodeTable(entries)))
	m := Open(kept)
	m.Get("7")
	m.Put("new", "new")
	if err := m.Save(); err != nil {
		t.Fatal(err)
	}
	m = Open(kept)
	if m.disk.count != 2 {
		t.Errorf("%d entries left, want 2", m.disk.count)
	}
}

func TestSaveFails(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	write(t, blocked, "")
	m := Open(filepath.Join(blocked, "memo"))
	m.Put("a", "b")
	if err := m.Save(); err == nil {
		t.Error("saving below a file succeeded")
	}
}

// TestDamage flips each byte of a small memo and truncates it at each length: a record must be intact or absent.
func TestDamage(t *testing.T) {
	want := map[string]string{"alpha": "1", "beta": "22", "gamma": "333"}
	entries := map[string][]byte{}
	for k, v := range want {
		entries[k] = []byte(v)
	}
	whole := encodeTable(entries)
	try := func(data []byte) {
		table := newTable(data)
		for k, v := range want {
			if got, ok := table.get(k); ok && string(got) != v {
				t.Fatalf("%q is %q, want %q", k, got, v)
			}
		}
	}
	for i := range whole {
		for _, bit := range []byte{1, 0x80, 0xff} {
			data := bytes.Clone(whole)
			data[i] ^= bit
			try(data)
		}
		try(whole[:i])
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte(magic))
	f.Add(encodeTable(map[string][]byte{"a": []byte("b"), "c": nil}))
	f.Fuzz(func(t *testing.T, data []byte) {
		table := newTable(data)
		table.get("a")
		entries := map[string][]byte{}
		table.each(func(k string, v []byte) { entries[k] = v })
		again := newTable(encodeTable(entries))
		for k, v := range entries {
			if got, ok := again.get(k); !ok || !bytes.Equal(got, v) {
				t.Errorf("%q is %q, %v after a round trip, want %q", k, got, ok, v)
			}
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	dir := t.TempDir()
	m := later(Open(filepath.Join(dir, "memo")))
	file := filepath.Join(dir, "f")
	write(t, file, "x")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				digest(t, m, file)
				m.Put(fmt.Sprint(i), "v")
				m.Get(fmt.Sprint(i))
			}
			if err := m.Save(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func BenchmarkOpen10k(b *testing.B) {
	entries := map[string][]byte{}
	for i := range 10_000 {
		entries[fmt.Sprintf("f/usr/lib/llvm/lib/clang/include/some/longer/path/header%d.h", i)] = make([]byte, recordSize)
	}
	kept := filepath.Join(b.TempDir(), "memo")
	if err := os.WriteFile(kept, encodeTable(entries), 0o600); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		m := Open(kept)
		for i := range 1000 {
			if _, ok := m.load(fmt.Sprintf("f/usr/lib/llvm/lib/clang/include/some/longer/path/header%d.h", i*10)); !ok {
				b.Fatal("lost")
			}
		}
	}
}

// TestCheckOfHugeFile checks that Check does not read a huge file into memory.
func TestCheckOfHugeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memo")
	write(t, path, magic)
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err == nil || !strings.Contains(err.Error(), "expected at most") {
		t.Errorf("got %v", err)
	}
}
