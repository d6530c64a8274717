package cache

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkOwner refuses a folder whose content another user may have written. A
// tier may belong to root as well.
func (d *Dir) checkOwner(path string, stat func(string) (fs.FileInfo, error)) error {
	info, err := stat(path)
	if err != nil {
		return &AccessError{Path: path, Op: "read", Err: err}
	}
	if !info.IsDir() {
		return &AccessError{Path: path, Op: "use", Err: syscall.ENOTDIR}
	}
	return d.checkWriters(path, info)
}

func (d *Dir) checkWriters(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	ours := int(st.Uid) == os.Geteuid() || d.readOnly && st.Uid == 0
	if ours && info.Mode().Perm()&0o022 == 0 {
		return nil
	}
	return &UntrustedError{Path: path, Owner: int(st.Uid), User: os.Geteuid(), Mode: info.Mode().Perm(), Tier: d.readOnly}
}

// checkTrust looks at the folder of an artifact of a tier, and at its library:
// whoever may write there may swap it after it was checked.
func (d *Dir) checkTrust(a Artifact) error {
	if !d.readOnly || d.trustForeign {
		return nil
	}
	for _, path := range []string{filepath.Dir(a.Path), a.Path} {
		info, err := os.Lstat(path)
		if err == nil {
			err = d.checkWriters(path, info)
		}
		if err != nil {
			d.tell(Fault{Path: path, Reason: err.Error()})
			return &MissError{"artifact", a.ID, err.Error()}
		}
	}
	return nil
}

// UntrustedError reports a cache folder that another user owns or may write
// to: loading a kernel from it would run that user's code.
type UntrustedError struct {
	Path        string
	Owner, User int // user ids: of the folder, of this process
	Mode        fs.FileMode
	Tier        bool // it is a read-only cache, which may belong to root too
}

func (e *UntrustedError) Error() string {
	if e.Mode&0o022 != 0 {
		return fmt.Sprintf("cache folder %s can be written by other users (mode %04o), and loading from it would run their code; run: chmod %sgo-w %s", e.Path, e.Mode, e.recursive(), e.Path)
	}
	if e.Tier {
		return fmt.Sprintf("cache folder %s belongs to user %d, which is neither root nor user %d of this process, and loading from it would run that user's code; run: chown -R root %s, or set AITER_TRUST_JIT_DIR=1", e.Path, e.Owner, e.User, e.Path)
	}
	return fmt.Sprintf("cache folder %s belongs to user %d, this process runs as user %d, and loading from it would run that user's code; run: chown -R %d %s, choose another folder with AITER_JIT_DIR, or set AITER_TRUST_JIT_DIR=1", e.Path, e.Owner, e.User, e.User, e.Path)
}

func (e *UntrustedError) recursive() string {
	if e.Tier {
		return "-R "
	}
	return ""
}
