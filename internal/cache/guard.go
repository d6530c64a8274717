package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aiter-go/aiter/internal/sys"
)

// guard finds files and folders that users other than root and the user of this process can
// change.
type guard struct {
	user uint32 // effective user id of the process
	// root is the owner of "/", which can replace every file and so is trusted. In a user
	// namespace that does not map root it is 65534 instead of 0. Files of all other users
	// have that id there too.
	root uint32
	etc  string // folder of passwd and group
}

func newGuard() guard {
	g := guard{user: uint32(os.Geteuid()), etc: "/etc"}
	if st, err := lstat("/"); err == nil {
		g.root = st.Uid
	}
	return g
}

// inspect returns nil if only root and the user can change the file or folder. With mayShare,
// a folder such as /tmp may be writable for all users if its sticky bit keeps users from moving
// each other's entries.
func (g guard) inspect(path string, st *sys.Stat, mayShare bool) *Exposure {
	shared := mayShare && st.Mode&sys.TypeMask == sys.Folder && st.Mode&sys.Sticky != 0
	x := Exposure{Path: path, Owner: int(st.Uid), Group: int(st.Gid), Mode: st.Mode & 0o7777}
	x.foreign = st.Uid != g.user && !g.isRoot(st.Uid)
	x.writable = !shared && (st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && !g.isPrivateGroup(st.Gid, path))
	if x.foreign || x.writable {
		return &x
	}
	return nil
}

func (g guard) isRoot(uid uint32) bool { return uid == 0 || uid == g.root }

// inspectOwn is like inspect, for entries of folders in which other users can create files:
// only the user and the real root may own them.
func (g guard) inspectOwn(path string, st *sys.Stat, mayShare bool) *Exposure {
	g.root = 0
	return g.inspect(path, st, mayShare)
}

// isPrivateGroup reports whether the user is the only member of the group, as on distributions
// with the umask 002. If the file has an access control list, its group bits are the list's
// mask, and the group does not count as private.
func (g guard) isPrivateGroup(gid uint32, path string) bool {
	if gid == 0 { // containers run programs of any user with the group root
		return false
	}
	if sys.HasACL(path) {
		return false
	}
	passwd, errP := os.ReadFile(filepath.Join(g.etc, "passwd"))
	group, errG := os.ReadFile(filepath.Join(g.etc, "group"))
	return errP == nil && errG == nil && isPrivate(string(passwd), string(group), fmt.Sprint(g.user), fmt.Sprint(gid))
}

// isPrivate reports whether the texts of /etc/passwd and /etc/group show that
// the group gid has the name of the user uid, is that user's primary group, and
// has no other member. Users and groups of directory services are not in these
// files, so that their groups count as shared.
func isPrivate(passwd, group, uid, gid string) bool {
	user := ""
	for line := range strings.Lines(passwd) { // name:password:uid:gid:...
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		switch {
		case len(f) < 4 || f[3] != gid:
		case f[2] != uid || user != "" && user != f[0]:
			return false
		default:
			user = f[0]
		}
	}
	found := false
	for line := range strings.Lines(group) { // name:password:gid:member,member
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) < 4 || f[2] != gid {
			continue
		}
		if f[0] != user || f[3] != "" && f[3] != user {
			return false
		}
		found = true
	}
	return user != "" && found
}

// maxLinks is the kernel's limit of symlinks in one path.
const maxLinks = 40

// pathWalk follows a path as the kernel does.
type pathWalk struct {
	guard
	at      string          // the folder reached, without symlinks
	shared  bool            // other users may add entries to that folder
	rest    []string        // names that follow
	links   int             // symlinks followed
	seen    map[string]bool // inspected paths
	exposed []Exposure
}

// walk returns the folders on the way to path that other users can change, and the symlinks in
// shared folders. It checks the parents of both ends of each symlink. Only root and the user
// can change the result later, because walk reads each entry in a folder that it has found
// safe. missing reports that an entry on the way does not exist.
func (g guard) walk(path string) (exposed []Exposure, missing bool, err error) {
	w := pathWalk{guard: g, rest: split(path), seen: map[string]bool{}}
	if err := w.enterRoot(); err != nil {
		return nil, false, err
	}
	for len(w.rest) > 0 {
		if err := w.step(); err != nil {
			return w.exposed, isMissing(err), err
		}
	}
	return w.exposed, false, nil
}

func isMissing(err error) bool { return err == syscall.ENOENT }

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// step goes on to the next name of the path.
func (w *pathWalk) step() error {
	name := w.rest[0]
	w.rest = w.rest[1:]
	if name == "." {
		return nil
	}
	next := filepath.Join(w.at, name)
	st, err := lstat(next)
	if err != nil {
		return err
	}
	if st.Mode&sys.TypeMask == sys.Link {
		return w.follow(next, &st)
	}
	return w.enter(next, &st)
}

func (w *pathWalk) enterRoot() error {
	st, err := lstat("/")
	if err != nil {
		return err
	}
	return w.enter("/", &st)
}

// enter moves on to a folder.
func (w *pathWalk) enter(dir string, st *sys.Stat) error {
	if st.Mode&sys.TypeMask != sys.Folder {
		return syscall.ENOTDIR
	}
	w.note(dir, st)
	w.at, w.shared = dir, st.Mode&0o022 != 0
	return nil
}

// follow replaces a symlink by its target. Users who can write to the folder of a symlink can
// replace the symlink. In a sticky folder only its owner can.
func (w *pathWalk) follow(link string, st *sys.Stat) error {
	if w.links++; w.links > maxLinks {
		return syscall.ELOOP
	}
	if w.shared {
		st.Mode &^= 0o777 // the kernel ignores the mode of a symlink
		w.note(link, st)
	}
	target, err := os.Readlink(link)
	if err != nil {
		return err
	}
	w.rest = append(split(target), w.rest...)
	if filepath.IsAbs(target) {
		return w.enterRoot()
	}
	return nil
}

// note inspects a file or folder once and records it if another user can change it.
func (w *pathWalk) note(path string, st *sys.Stat) {
	if w.seen[path] {
		return
	}
	w.seen[path] = true
	inspect := w.inspect
	if w.shared && path != "/" {
		inspect = w.inspectOwn
	}
	if x := inspect(path, st, true); x != nil {
		w.exposed = append(w.exposed, *x)
	}
}

// lstat repeats a call that a signal interrupted.
func lstat(path string) (st sys.Stat, err error) {
	for {
		if err = sys.Lstat(path, &st); err != syscall.EINTR {
			return st, err
		}
	}
}
