package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/aiter-go/aiter/internal/shell"
	"github.com/aiter-go/aiter/internal/sys"
)

// checkTrust fails with [*UntrustedError] if another user can change files of the cache:
// through a parent folder, a symlink on the way, or a folder of the cache. missing reports
// that a fixed folder may be missing.
func (d *Dir) checkTrust() (missing bool, err error) {
	if d.trustForeign {
		return true, nil
	}
	exposed, missing, err := d.guard.walk(d.path)
	if err != nil && !missing {
		return false, &AccessError{Path: d.path, Op: "read", Err: err}
	}
	fixed := append(folders(), "", "source", "quarantine", "pulled")
	for i, sub := range fixed {
		fixed[i] = filepath.Join(d.base, sub)
		more, absent, err := d.inspectFolder(fixed[i])
		if err != nil {
			return false, err
		}
		exposed, missing = append(exposed, more...), missing || absent && i < len(folders())
	}
	if len(exposed) > 0 {
		return false, d.untrusted(exposed)
	}
	d.noteSafe(fixed...)
	return missing, nil
}

// inspectFolder checks a folder of the cache. The folders of the user's own cache must belong
// to the user.
func (d *Dir) inspectFolder(path string) (exposed []Exposure, absent bool, err error) {
	st, err := lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, true, nil
	case err != nil:
		return nil, false, &AccessError{Path: path, Op: "read", Err: err}
	case st.Mode&sys.TypeMask != sys.Folder:
		return nil, false, &AccessError{Path: path, Op: "use", Err: syscall.ENOTDIR}
	}
	x := d.inspect(path, &st)
	if x == nil && !d.readOnly && st.Uid != d.guard.user {
		x = &Exposure{Path: path, Owner: int(st.Uid), Group: int(st.Gid), Mode: st.Mode & 0o7777, foreign: true}
	}
	if x == nil {
		return nil, false, nil
	}
	x.inside = true
	return []Exposure{*x}, false, nil
}

// inspect returns nil if no other user can change the file or folder of the cache. A read-only
// cache may belong to the owner of "/", which a user namespace may show as another user than 0.
func (d *Dir) inspect(path string, st *sys.Stat) *Exposure {
	if d.readOnly {
		return d.guard.inspect(path, st, false)
	}
	return d.guard.inspectOwn(path, st, false)
}

func (d *Dir) untrusted(exposed []Exposure) *UntrustedError {
	return &UntrustedError{Path: d.path, User: int(d.guard.user), ReadOnly: d.readOnly, Exposed: exposed, base: d.base}
}

// admit fails with [*UntrustedError] if another user can change or replace the open file of the
// cache. [Open] has checked the fixed folders and those above; admit checks each folder in
// between once.
func (d *Dir) admit(path string, st *sys.Stat) error {
	if d.trustForeign || d.unwritable != nil {
		return nil
	}
	x := d.inspect(path, st)
	for dir := filepath.Dir(path); x == nil && len(dir) > len(d.base) && !d.isSafe(dir); dir = filepath.Dir(dir) {
		folder, err := lstat(dir)
		if err != nil {
			return &fs.PathError{Op: "stat", Path: dir, Err: err}
		}
		if x = d.inspect(dir, &folder); x == nil {
			d.noteSafe(dir)
		}
	}
	if x == nil {
		return nil
	}
	x.inside = true
	return d.untrusted([]Exposure{*x})
}

func (d *Dir) isSafe(dir string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.safe[dir]
}

func (d *Dir) noteSafe(dirs ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.safe == nil {
		d.safe = map[string]bool{}
	}
	for _, dir := range dirs {
		d.safe[dir] = true
	}
}

// CheckTree fails with [*UntrustedError] if another user can change a folder of the cache, or
// anything in it.
func (d *Dir) CheckTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := lstat(path)
		if err != nil {
			return &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		return d.admit(path, &st)
	})
}

// DropSharedWrite removes the write permission of group and others from a folder and from
// everything in it. The umask decides the permissions of new files.
func DropSharedWrite(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Mode().Perm()&0o022 == 0 {
			return err
		}
		if err := os.Chmod(path, info.Mode()&^0o022); !errors.Is(err, fs.ErrPermission) { // a filesystem without modes
			return err
		}
		return nil
	})
}

// Exposure is a file, folder or symlink that users other than root and the
// user of this process can change.
type Exposure struct {
	Path         string
	Owner, Group int    // numeric ids
	Mode         uint32 // permission bits, with setuid, setgid and sticky

	foreign  bool // another user owns it
	writable bool // its mode permits others to write
	inside   bool // it is in the cache, not on the way to it
}

// UntrustedError reports a cache that another user can change: loading a kernel
// from it would run that user's code.
type UntrustedError struct {
	Path     string // the cache folder
	User     int    // user id of this process
	ReadOnly bool   // it is a read-only cache, which may belong to root too
	Exposed  []Exposure

	base string
}

func (e *UntrustedError) Error() string {
	alternative := "choose another folder with AITER_JIT_DIR"
	if e.ReadOnly {
		alternative = "remove it from AITER_JIT_PATH"
	}
	return fmt.Sprintf("%s; %s; or %s; or accept the risk with AITER_TRUST_JIT_DIR=1", e.Reason(), e.Advice(), alternative)
}

// Reason returns the part of Error that lists the files and folders that other users can change.
func (e *UntrustedError) Reason() string {
	var list []string
	for _, x := range e.Exposed {
		list = append(list, fmt.Sprintf("%s (owner %d, group %d, mode %04o)", shown(x.Path), x.Owner, x.Group, x.Mode))
	}
	return fmt.Sprintf("users other than root and user %d of this process can change the kernel cache %s, "+
		"and loading from it would run their code: %s", e.User, shown(e.Path), strings.Join(list, ", "))
}

// Advice returns the part of Error that gives the command of [UntrustedError.Fix], the user who can
// run it, and its condition.
func (e *UntrustedError) Advice() string {
	has := func(is func(Exposure) bool) bool { return slices.ContainsFunc(e.Exposed, is) }
	advice := "run"
	if e.User != 0 && has(func(x Exposure) bool { return x.foreign || x.Owner != e.User }) {
		advice = "run as root"
	}
	if has(func(x Exposure) bool { return x.foreign && x.inside }) {
		advice = "if you trust the other user's files there, " + advice
	}
	return advice + ": " + e.Fix()
}

// Fix returns a shell command after which the cache is trusted.
func (e *UntrustedError) Fix() string {
	var owner, mode, cmds []string
	ownerInside, modeInside := false, false // wrong in the cache itself
	for _, x := range e.Exposed {
		if x.inside {
			ownerInside, modeInside = ownerInside || x.foreign, modeInside || x.writable
			continue
		}
		if x.foreign {
			owner = append(owner, shell.Quote(x.Path))
		}
		if x.writable {
			mode = append(mode, shell.Quote(x.Path))
		}
	}
	if owner != nil {
		cmds = append(cmds, "chown -h root "+strings.Join(owner, " "))
	}
	if mode != nil {
		cmds = append(cmds, "chmod go-w "+strings.Join(mode, " "))
	}
	if ownerInside {
		cmds = append(cmds, "chown -R "+e.wantedOwner()+" "+shell.Quote(e.base))
	}
	if modeInside {
		cmds = append(cmds, "chmod -R go-w "+shell.Quote(e.base))
	}
	return strings.Join(cmds, " && ")
}

// wantedOwner returns the user who should own the files of the cache.
func (e *UntrustedError) wantedOwner() string {
	if e.ReadOnly {
		return "root"
	}
	return fmt.Sprint(e.User)
}

// RootOnly reports whether only root can change the cache: it is safe to read, and this user
// cannot write to it.
func (e *UntrustedError) RootOnly() bool {
	return !slices.ContainsFunc(e.Exposed, func(x Exposure) bool { return x.Owner != 0 || x.writable })
}
