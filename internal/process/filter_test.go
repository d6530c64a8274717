//go:build linux && amd64

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// accesses is a script with every kind of access, in the program itself and in its children.
const accesses = `. ./sourced; cat sub/read >made; mv made moved; cat moved; [ -e absent ] || [ -e there ]; ls sub
	readlink link; ./script; (cat also)
	grep -E "^(Seccomp_filters|NoNewPrivs)" /proc/self/status`

// traceAs traces a shell that has the given file name and executes the script accesses. The command before starts it. traceAs
// returns the accesses in its folder, the number of its filters, and whether it gave up privileges.
func traceAs(t *testing.T, name, before string) (seen []string, filters int, unprivileged bool) {
	t.Helper()
	c, dir := shell(t, "exec "+before+" ./"+name+` -c "$SCRIPT"`)
	c.Env = append(c.Env, "SCRIPT="+accesses)
	for _, at := range []string{dir, filepath.Dir(dir)} { // another user writes in it
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"sourced": ":", "sub/read": "text", "there": "", "also": "too", "script": "#!/bin/sh\ncat <also",
	} {
		write(t, filepath.Join(dir, file), text, 0o755)
	}
	write(t, filepath.Join(dir, name), string(readFile(t, "/bin/sh")), 0o755)
	if err := os.Symlink("elsewhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	trace, err := c.Trace(t.Context())
	if err != nil || trace.Incomplete != "" {
		t.Fatalf("%v, incomplete: %q, printed %s", err, trace.Incomplete, c.Output.Bytes())
	}
	out := string(c.Output.Bytes())
	found := regexp.MustCompile(`(?s)^textread\nelsewhere\ntootooNoNewPrivs:\t(\d)\nSeccomp_filters:\t(\d+)\n$`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("printed %q", out)
	}
	for _, a := range trace.Accesses {
		if rest, ok := strings.CutPrefix(a.Path, dir+"/"); ok && rest != name {
			seen = append(seen, string(a.Kind)+" "+rest+" "+strconv.FormatBool(a.Program))
		}
	}
	slices.Sort(seen)
	filters, _ = strconv.Atoi(found[2])
	return seen, filters, found[1] == "1"
}

// TestFilter checks that a program with the name of Clang is traced with a filter, and that the trace is the same as without.
func TestFilter(t *testing.T) {
	want, without, _ := traceAs(t, "shell", "")
	for _, name := range []string{"clang", "clang-21"} {
		got, filters, unprivileged := traceAs(t, name, "")
		if !slices.Equal(got, want) {
			t.Errorf("%s: accesses %q, expected %q", name, got, want)
		}
		if filters != without+1 {
			t.Errorf("%s has %d filters, expected %d", name, filters, without+1)
		}
		if os.Geteuid() == 0 && unprivileged {
			t.Errorf("%s gave up privileges", name)
		}
	}
	if len(want) < 8 {
		t.Errorf("accesses %q", want)
	}
}

// TestFilterWithoutPrivileges: a user other than root may install a filter only in programs that give up privileges.
func TestFilterWithoutPrivileges(t *testing.T) {
	before := ""
	if os.Geteuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("setpriv of util-linux is not installed")
		}
		before = "setpriv --reuid 65534 --regid 65534 --clear-groups"
	}
	want, without, _ := traceAs(t, "shell", before)
	got, filters, unprivileged := traceAs(t, "clang", before)
	if !slices.Equal(got, want) || filters != without+1 || !unprivileged {
		t.Errorf("%d filters, without privileges: %v, accesses %q, expected %q", filters, unprivileged, got, want)
	}
}

// TestFilterOfThreads traces a program with many threads, all of which have the filter.
func TestFilterOfThreads(t *testing.T) {
	c, dir := shell(t, "./clang version go.mod >/dev/null; exec ./clang version go.mod")
	write(t, filepath.Join(dir, "go.mod"), "module x\n", 0o644)
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	c.Env = append(c.Env, "GOROOT="+strings.TrimSpace(string(root)))
	write(t, filepath.Join(dir, "clang"), string(readFile(t, filepath.Join(strings.TrimSpace(string(root)), "bin", "go"))), 0o755)
	trace, err := c.Trace(t.Context())
	if err != nil {
		t.Fatalf("%v: %s", err, c.Output.Bytes())
	}
	if !slices.ContainsFunc(trace.Accesses, func(a Access) bool { return a.Path == filepath.Join(dir, "go.mod") }) {
		t.Error("go.mod was not read")
	}
}

// TestFilterEndsChildren checks that children of a filtered program end with the trace: without a tracer their system
// calls would fail.
func TestFilterEndsChildren(t *testing.T) {
	c, dir := shell(t, `exec ./clang -c "$SCRIPT"`)
	c.Env = append(c.Env, `SCRIPT=setsid sh -c 'echo $$ >pid; sleep 600' </dev/null >/dev/null 2>&1 &
		until [ -s pid ]; do sleep 0.02; done`)
	write(t, filepath.Join(dir, "clang"), string(readFile(t, "/bin/sh")), 0o755)
	if _, err := c.Trace(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, filepath.Join(dir, "pid"))
}
