package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenReadOnly opens a cache that is only read: one that another process, another
// user or the build of a container image has filled. It may lie on a read-only
// filesystem and belong to root. It fails with [*TierError] when no cache is
// there (errors.Is fs.ErrNotExist) or it cannot be read, and with
// [*UntrustedError].
func OpenReadOnly(path string, opts Options) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &ReadOnlyError{path, err}
	}
	d := newDir(abs, opts)
	d.readOnly = true
	if _, err := os.ReadDir(d.base); err != nil {
		if others := otherLayouts(abs); errors.Is(err, fs.ErrNotExist) && len(others) > 0 {
			err = &LayoutError{others[len(others)-1]}
		}
		return nil, &ReadOnlyError{abs, err}
	}
	if _, err := d.checkTrust(); err != nil {
		return nil, err
	}
	return d, nil
}

// ReadOnlyError reports a folder that is to be read as a cache and is none.
type ReadOnlyError struct {
	Path string
	Err  error
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("no cache to read in %s: %v; make one with aiterctl build --output %s, or correct AITER_JIT_PATH", shown(e.Path), e.Err, quote(e.Path))
}

// Unwrap returns the system's error.
func (e *ReadOnlyError) Unwrap() error { return e.Err }

// AddReadOnly lays the cache over tiers: what it has not got is looked for in them,
// in their order, checked against its digest, and used where it is. Nothing is
// ever written there. It is to be called before anything else.
func (d *Dir) AddReadOnly(tiers ...*Dir) { d.below = append(d.below, tiers...) }

// ReadOnly returns the caches below this one.
func (d *Dir) ReadOnly() []*Dir { return d.below }

// nowhere is a folder that nobody can make.
const nowhere = "/proc/aiter-no-cache"

// Unwritable returns a cache that is empty and stays so: what tiers are laid
// under ([Dir.Over]) where no folder can be written. Whoever has to store
// something gets why. Path is the folder that it would be.
func Unwritable(path string, why error, opts Options) *Dir {
	d := newDir(path, opts)
	d.base, d.readOnly, d.unwritable = nowhere, true, why
	return d
}

// writeError is what there is to say to who wants to store something in a cache
// that is only read.
func (d *Dir) writeError() error {
	if d.unwritable != nil {
		return d.unwritable
	}
	return &AccessError{d.path, "write to", syscall.EROFS}
}

// Writable returns the reason why nothing can be stored here, nil if none is known.
func (d *Dir) Writable() error {
	if d.unwritable != nil {
		return d.unwritable
	}
	for _, dir := range []string{d.base, filepath.Join(d.base, "stage"), filepath.Join(d.base, "record")} {
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return &AccessError{Path: d.path, Op: "write to", Err: err}
		}
	}
	return nil
}

// readOnlyWith returns the tiers in which a record may be looked for. What failed
// elsewhere need not fail here.
func (d *Dir) readOnlyWith(kind Kind, key Key) []*Dir {
	if len(d.below) == 0 || kind == Failure {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone[string(kind)+"/"+string(key)] {
		return nil
	}
	return d.below
}

// ignoreBelow has the tiers' records of that name passed over from now on: they
// lead to something that is not there.
func (d *Dir) ignoreBelow(kind Kind, key Key) {
	if len(d.below) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone == nil {
		d.gone = map[string]bool{}
	}
	d.gone[string(kind)+"/"+string(key)] = true
}

func (d *Dir) reportFault(f Fault) {
	if d.faulty != nil {
		d.faulty(f)
	}
}
