//go:build linux

package cache

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const other = 12345 // a user id that no test runs as

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("giving files away and becoming another user needs root")
	}
}

// place makes a folder that the other user can reach, and runs a shell script in it.
func place(t *testing.T, script string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "aiter-trust-") // other users cannot reach t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	runShell(t, dir, 0, script)
	return dir
}

func runShell(t *testing.T, dir string, uid uint32, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", "umask 022\n"+script)
	cmd.Dir = dir
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// Each case is a path to a cache, c, and the folders on it that other users can change. After
// the command that the error prints the cache is trusted.
func TestPathToCache(t *testing.T) {
	needRoot(t)
	tests := []struct {
		name, script, at string
		exposed          []string
	}{
		{"all folders are the user's", "mkdir -p a/b", "a/b/c", nil},
		{"a sticky folder", "mkdir -p a/b; chmod 1777 a", "a/b/c", nil},
		{"an empty sticky folder", "mkdir a; chmod 1777 a", "a/b/c", nil},
		{"the cache in a sticky folder itself", "mkdir c; chmod 1777 c", "c", nil},
		{"a parent writable for all", "mkdir -p a/b; chmod 0777 a", "a/b/c", []string{"a"}},
		{"a parent writable for a group", "mkdir -p a/b; chgrp 12345 a; chmod 0775 a", "a/b/c", []string{"a"}},
		{"a parent writable for the group root", "mkdir -p a/b; chmod 0775 a", "a/b/c", []string{"a"}},
		{"a parent of another user", "mkdir -p a/b; chown 12345 a", "a/b/c", []string{"a"}},
		{"a sticky parent of another user", "mkdir -p a/b; chmod 1777 a; chown 12345 a", "a/b/c", []string{"a"}},
		{"several", "mkdir -p a/b/c; chmod 0777 a a/b; chown 12345 a/b; chmod 0775 a/b/c", "a/b/c", []string{"a", "a/b", "a/b/c"}},
		{"names that the shell must quote", "mkdir -p \"a b/it's\"; chmod 0777 'a b' \"a b/it's\"", "a b/it's/c", []string{"a b", "a b/it's"}},
		{"behind a link", "mkdir -p open/c; chmod 777 open; ln -s open/c c", "c", []string{"open"}},
		{"behind an absolute link", "mkdir -p open/c; chmod 777 open; ln -s $PWD/open/c c", "c", []string{"open"}},
		{"a link in an open folder", "mkdir -p c open; chmod 777 open; ln -s ../c open/link", "open/link", []string{"open"}},
		{"links through links", "mkdir -p c open; chmod 777 open; ln -s ../c open/one; ln -s open/../open/one two", "two", []string{"open"}},
		{"another user's link in a sticky folder", "mkdir -p c s; chmod 1777 s; ln -s ../c s/link; chown -h 12345 s/link", "s/link",
			[]string{"s/link"}},
		{"another user's link in the user's folder", "mkdir -p c s; ln -s ../c s/link; chown -h 12345 s/link", "s/link", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := place(t, tt.script)
			at := filepath.Join(dir, tt.at)
			_, before := os.Lstat(at)
			_, err := Open(at, Options{})
			if tt.exposed == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			checkExposed(t, err, dir, tt.exposed)
			if _, after := os.Lstat(at); (before == nil) != (after == nil) {
				t.Error("Open created something in spite of the error")
			}
			runShell(t, "/", 0, fix(t, err))
			if _, err := Open(at, Options{}); err != nil {
				t.Errorf("after the command of the error: %v", err)
			}
		})
	}
}

func checkExposed(t *testing.T, err error, dir string, want []string) {
	t.Helper()
	var bad *UntrustedError
	if !errors.As(err, &bad) {
		t.Fatalf("got %v, want an UntrustedError", err)
	}
	var got []string
	for _, x := range bad.Exposed {
		rel, _ := filepath.Rel(dir, x.Path)
		got = append(got, rel)
		if !strings.Contains(err.Error(), x.Path+" (owner ") {
			t.Errorf("%v does not name %s with its owner", err, x.Path)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("exposed: %q, want %q", got, want)
	}
}

// fix returns the command in the text of an error.
func fix(t *testing.T, err error) string {
	t.Helper()
	_, text, ok := strings.Cut(err.Error(), "run: ")
	if !ok {
		_, text, ok = strings.Cut(err.Error(), "run as root: ")
	}
	cmd, _, end := strings.Cut(text, "; or ")
	if !ok || !end {
		t.Fatalf("no command in: %v", err)
	}
	return cmd
}

func TestPrivateGroups(t *testing.T) {
	const passwd = "root:x:0:0::/:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n"
	const group = "root:x:0:\nann:x:1000:\nbob:x:1001:\nlab:x:2000:ann\n"
	tests := []struct {
		name, passwd, group, uid, gid string
		want                          bool
	}{
		{"of the user", passwd, group, "1000", "1000", true},
		{"with the user as a member", passwd, strings.Replace(group, "ann:x:1000:", "ann:x:1000:ann", 1), "1000", "1000", true},
		{"with another member", passwd, strings.Replace(group, "ann:x:1000:", "ann:x:1000:ann,bob", 1), "1000", "1000", false},
		{"of another user", passwd, group, "1000", "1001", false},
		{"not the primary group", passwd, group, "1000", "2000", false},
		{"primary group of two", passwd + "eve:x:1002:1000::/:/bin/sh\n", group, "1000", "1000", false},
		{"of another name", passwd, strings.Replace(group, "ann:x:1000:", "users:x:1000:", 1), "1000", "1000", false},
		{"listed twice, with a member", passwd, group + "ann:x:1000:bob\n", "1000", "1000", false},
		{"a user of a directory service", passwd, group, "5000", "5000", false},
		{"a group of a directory service", passwd, "root:x:0:\n", "1000", "1000", false},
		{"two names of one user", passwd + "ann2:x:1000:1000::/:/bin/sh\n", group, "1000", "1000", false},
		{"damaged lines", "ann\nann:x\n" + passwd, ":\n\nann:x\n" + group, "1000", "1000", true},
		{"nothing", "", "", "1000", "1000", false},
	}
	for _, tt := range tests {
		if got := isPrivate(tt.passwd, tt.group, tt.uid, tt.gid); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The folders belong to a user with the umask 002 and a group without other members.
func TestFolderOfPrivateGroupIsTrusted(t *testing.T) {
	needRoot(t)
	dir := place(t,
		"mkdir -p etc a; echo u:x:12345:12345::/:/bin/sh >etc/passwd; echo u:x:12345: >etc/group; chown 12345:12345 a; chmod 2775 a")
	g := guard{user: other, etc: filepath.Join(dir, "etc")}
	exposed := func() int {
		list, _, err := g.walk(filepath.Join(dir, "a"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := exposed(); n != 0 {
		t.Errorf("%d exposed", n)
	}
	// With an access control list the group bits apply to all users and groups in the list.
	acl := []byte("\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x02\x00\x07\x00\x01\x00\x00\x00\x04\x00\x07\x00\xff\xff\xff\xff" +
		"\x10\x00\x07\x00\xff\xff\xff\xff\x20\x00\x05\x00\xff\xff\xff\xff")
	switch err := unix.Setxattr(filepath.Join(dir, "a"), "system.posix_acl_access", acl, 0); {
	case errors.Is(err, unix.ENOTSUP):
		t.Log("this file system has no access control lists")
	case err != nil:
		t.Fatal(err)
	case exposed() != 1:
		t.Error("a folder that an access control list opens to other users is trusted")
	default:
		_ = unix.Removexattr(filepath.Join(dir, "a"), "system.posix_acl_access")
	}
	runShell(t, dir, 0, "echo u:x:12345:v >etc/group")
	if n := exposed(); n != 1 {
		t.Errorf("with another member: %d exposed", n)
	}
	g.user = 54321
	if n := exposed(); n != 1 {
		t.Errorf("for another user: %d exposed", n)
	}
	g.root = other // the owner of "/", as in a user namespace
	runShell(t, dir, 0, "chmod 755 a")
	if n := exposed(); n != 0 {
		t.Errorf("for the owner of the root folder: %d exposed", n)
	}
}

// A user namespace that does not map root shows the files of root and of all other users with
// one id. In a folder in which other users can create files, such a file may belong to any user.
func TestFilesOfUnmappedUsersInSharedFolders(t *testing.T) {
	needRoot(t)
	dir := place(t, "mkdir -p s/cache own/cache; chmod 1777 s; ln -s ../own s/link; chown -h 12345 s s/cache s/link own own/cache")
	g := guard{user: 54321, root: other, etc: "/etc"}
	for path, want := range map[string]int{"own/cache": 0, "s": 0, "s/cache": 1, "s/link": 1} {
		if list, _, err := g.walk(filepath.Join(dir, path)); err != nil || len(list) != want {
			t.Errorf("%s: %+v, %v, want %d exposed", path, list, err, want)
		}
	}
}

// Only a read-only cache may belong to the owner of "/" in a user namespace.
func TestOwnCacheOfUnmappedUsers(t *testing.T) {
	needRoot(t)
	f := newFilled(t)
	if err := os.Chown(f.dir.BlobPath(f.blob), other, other); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{true, false} { // the second quarantines the object
		d := newDir(f.dir.path, Options{})
		d.readOnly, d.guard.root = readOnly, other
		if _, err := d.Blob(f.blob); (err == nil) != readOnly {
			t.Errorf("read-only %v: %v", readOnly, err)
		}
	}
}
