package depfile

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archives makes archives with the machine's ar, and returns the folder.
func archives(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	script := `set -e; cd "$1"; mkdir sub; mkdir "a folder"
for name in one.o sub/two.o "a folder/three.o" sub/a_name_that_is_longer_than_sixteen.o; do echo "int x;" | gcc -x c -c - -o "$name"; done
ar rcT plain.a one.o sub/two.o "a folder/three.o" sub/a_name_that_is_longer_than_sixteen.o
ar rcT absolute.a "$1/one.o"
ar rc regular.a one.o sub/two.o
ar rcT nested.a regular.a one.o
ar rcTS unindexed.a one.o
ar rcT empty.a
: > nothing.a`
	if out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func TestThinMembers(t *testing.T) {
	dir := archives(t)
	for name, want := range map[string][]string{
		"plain.a":     {"one.o", "sub/two.o", "a folder/three.o", "sub/a_name_that_is_longer_than_sixteen.o"},
		"absolute.a":  {dir + "/one.o"},
		"nested.a":    {"regular.a", "one.o"},
		"unindexed.a": {"one.o"},
		"regular.a":   nil,
		"empty.a":     nil,
		"nothing.a":   nil,
		"one.o":       nil,
	} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ThinMembers(f)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
		_ = f.Close()
	}
}

func TestThinMembersDamaged(t *testing.T) {
	header := func(name, size string) string {
		return name + strings.Repeat(" ", 48-len(name)) + size + strings.Repeat(" ", 10-len(size)) + "`\n"
	}
	names := thinMagic + header("//", "4") + "a/\n\n"
	for _, text := range []string{
		thinMagic + "x",
		thinMagic + strings.Repeat("x", headerSize),
		thinMagic + header("a/", "-1"),
		thinMagic + header("a/", "1x"),
		thinMagic + header("a", "1"),
		thinMagic + header("/", "1") + "xy" + "z",
		thinMagic + header("//", "9") + "a/\n",
		thinMagic + header("//", "9999999999"),
		thinMagic + header("/0", "1"),
		names + header("/4", "1"),
		names + header("/-1", "1"),
		names + header("/3", "1"),
		names + header("/x", "1"),
		names + header("#1/4", "1"),
	} {
		var syntax *SyntaxError
		if got, err := ThinMembers(strings.NewReader(text)); !errors.As(err, &syntax) {
			t.Errorf("%q: %q, %v, want a SyntaxError", text, got, err)
		}
	}
	if got, err := ThinMembers(strings.NewReader(names + header("/0", "1"))); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("undamaged: %q, %v", got, err)
	}
}

func FuzzThinMembers(f *testing.F) {
	dir := archives(f)
	for _, name := range []string{"plain.a", "absolute.a", "nested.a", "unindexed.a", "regular.a", "empty.a"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("!<thin>\n\x00/                                              8         `\n")) // a name that no file has
	f.Fuzz(func(t *testing.T, data []byte) {
		members, err := ThinMembers(bytes.NewReader(data))
		if err != nil && len(members) > 0 {
			t.Errorf("an error and %q", members)
		}
		for _, m := range members {
			if m == "" || strings.ContainsAny(m, "\n\x00") || !bytes.Contains(data, []byte(filepath.Base(m))) {
				t.Errorf("member %q", m)
			}
		}
	})
}
