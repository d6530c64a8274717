package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/aiter-go/aiter/internal/shell"
	"github.com/aiter-go/aiter/internal/sys"
)

// OpenReadOnly opens a read-only cache, which another process, another user or the build of
// a container image has filled. It may be on a read-only filesystem and belong to root. It
// fails with [*ReadOnlyError] if there is no cache (errors.Is fs.ErrNotExist) or the folder
// cannot be read, and with [*UntrustedError].
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

// ReadOnlyError reports a folder that cannot be read as a cache.
type ReadOnlyError struct {
	Path string
	Err  error
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("no cache in %s: %v; make one with aiterctl build --output %s, or correct AITER_JIT_PATH",
		shown(e.Path), e.Err, shell.Quote(e.Path))
}

// Unwrap returns the system's error.
func (e *ReadOnlyError) Unwrap() error { return e.Err }

// AddReadOnly adds read-only caches. Lookups search them, in their order, for entries that the
// cache lacks. They check the digests of these entries and use them in place.
func (d *Dir) AddReadOnly(caches ...*Dir) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.below = append(slices.Clip(d.below), caches...) // a copy: lookups read the old slice
	d.ignored = nil                                   // an added cache may have what records lacked
}

// ReadOnly returns the read-only caches below this one.
func (d *Dir) ReadOnly() []*Dir {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.below
}

// impossibleFolder is a folder that cannot be created.
const impossibleFolder = "/proc/aiter-no-cache"

// Unwritable returns an empty cache that cannot be written, for machines without a writable
// folder. Read-only caches can be added to it. Writes fail with why. path is the folder that
// the cache would have.
func Unwritable(path string, why error, opts Options) *Dir {
	d := newDir(path, opts)
	d.base, d.readOnly, d.unwritable = impossibleFolder, true, why
	return d
}

// writeError returns the error of a write to a read-only cache.
func (d *Dir) writeError() error {
	if d.unwritable != nil {
		return d.unwritable
	}
	return &AccessError{d.path, "write to", syscall.EROFS}
}

// Writable returns the reason why the cache cannot be written, nil if it can.
func (d *Dir) Writable() error {
	if d.unwritable != nil {
		return d.unwritable
	}
	for _, dir := range []string{d.base, filepath.Join(d.base, "stage"), filepath.Join(d.base, "record")} {
		if err := sys.WritableFolder(dir); err != nil {
			return &AccessError{Path: d.path, Op: "write to", Err: err}
		}
	}
	return nil
}

// readOnlyWith returns the read-only caches in which a record may be looked up. Failures
// depend on the machine, so that it returns none for them.
func (d *Dir) readOnlyWith(kind Kind, key Key) []*Dir {
	if kind == Failure {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ignored[string(kind)+"/"+string(key)] {
		return nil
	}
	return d.below
}

// ignoreBelow makes later lookups ignore a record of the read-only caches, because it leads to a
// missing entry.
func (d *Dir) ignoreBelow(kind Kind, key Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.below) == 0 {
		return
	}
	if d.ignored == nil {
		d.ignored = map[string]bool{}
	}
	d.ignored[string(kind)+"/"+string(key)] = true
}
