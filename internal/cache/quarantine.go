package cache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Quarantine moves a corrupt entry to the quarantine folder. If that fails, it removes the
// entry. It does not change a read-only cache.
func (d *Dir) Quarantine(path string) {
	if d.readOnly {
		return
	}
	dir := filepath.Join(d.base, "quarantine")
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		_ = os.Remove(dir)
	}
	_ = os.MkdirAll(dir, 0o700)
	f, err := os.MkdirTemp(dir, filepath.Base(path)+"-")
	if err == nil && os.Rename(path, filepath.Join(f, filepath.Base(path))) == nil {
		return
	}
	_ = os.RemoveAll(path)
}

// corrupt moves the entry at path to quarantine, unless the cache is read-only, reports the fault, and returns the miss.
func (d *Dir) corrupt(kind Kind, key, path, reason string) *MissError {
	d.Quarantine(path)
	d.reportFault(Fault{Path: path, Reason: reason, Kept: d.readOnly})
	return &MissError{kind, key, reason}
}

// quarantineIrregular moves an entry to quarantine if it could not be read because it is not a
// file, is too large, or can be changed by another user. After other read errors (no
// permission, no file descriptor left, a bad disk) the entry stays, because its content may be
// intact.
func (d *Dir) quarantineIrregular(path string, err error) {
	var foreign *UntrustedError
	switch {
	case errors.As(err, &foreign):
		d.quarantineForeign(path, foreign)
	case as[*irregularError](err), as[*sizeError](err):
		_ = d.corrupt("file", "", path, err.Error())
	}
}

// quarantineForeign moves to quarantine the entry that another user can change: path, or a
// folder above it. The fixed folders stay; the next [Open] fails because of them.
func (d *Dir) quarantineForeign(path string, err *UntrustedError) {
	at := err.Exposed[0].Path
	if at != path && filepath.Dir(at) == d.base {
		d.reportFault(Fault{Path: at, Reason: err.Error(), Kept: true})
		return
	}
	if strings.HasPrefix(path, at+"/") {
		path = at
	}
	_ = d.corrupt("file", "", path, err.Error())
}

// reportFault passes a fault to [Options.Faulty].
func (d *Dir) reportFault(f Fault) {
	if d.faulty != nil {
		d.faulty(f)
	}
}
