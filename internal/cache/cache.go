// Package cache stores the results of builds: small records, named by the key of the
// action that made them, and files, named by their SHA-256. An entry is published by a
// rename and never changes, so that a reader gets a complete entry or none.
//
// Layout below the folder given to [Open]:
//
//	CACHEDIR.TAG            excludes the folder from backups
//	v2/record/KIND/ab/KEY   records (action results, dependency lists)
//	v2/blob/ab/SHA256       object files
//	v2/artifact/ID/         one folder for each artifact: NAME.so and artifact.json
//	v2/lock/KEY             flock files, one for each key
//	v2/stage/               unfinished work, one folder for each job
//	v2/log/                 output of compilers, for failed units
//	v2/quarantine/          corrupt entries
//	v2/pulled/NAME/         read-only caches that came from a registry
//	v2/source/DIGEST/       extracted source trees of programs that contain their sources
//	v2/filehash             digests of files; see package filehash
//	v2/counts               counts of hits and misses; see [Dir.Count]
//	v2/trimmed              its modification time is the time of the last [Dir.Trim]
//
// A cache may have read-only caches below it; see [Dir.AddReadOnly].
package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unicode"
)

// tagText is the content of CACHEDIR.TAG. Backup programs recognize its first line.
const tagText = "Signature: 8a477f597d28d172789f06886806bc55\n" +
	"# This folder is a cache of compiled GPU kernels (aiter). It can be removed at any time.\n"

// Dir is a cache folder. Its methods may be called from any goroutine, and
// from any number of processes on the same folder.
type Dir struct {
	path string // the folder itself
	base string // path/v2

	guard        guard
	trustForeign bool
	readOnly     bool  // it is a read-only cache, or has no folder
	unwritable   error // why it has no folder, nil if it has one; see [Unwritable]
	limits       Limits
	faulty       func(Fault)
	storing      func() // is called once, see Options.Storing

	flock func(f *os.File, how int) error // see Options.Flock

	hold *os.File // of a pulled cache, prevents its removal

	mu         sync.Mutex
	below      []*Dir                // read-only caches, in the order of lookups; see ReadOnly
	localLocks map[Key]chan struct{} // see localLock
	ignored    map[string]bool       // KIND/KEY of records of read-only caches; see ignoreBelow
	safe       map[string]bool       // folders that no other user can change; see admit
}

// Options of [Open].
type Options struct {
	// TrustForeign accepts a folder that another user can change, itself or through
	// one of its parents. Loading from such a folder runs that user's code.
	TrustForeign bool
	// Limits are kept by [Dir.Trim].
	Limits Limits
	// Faulty, if not nil, receives each corrupt entry, from any goroutine.
	Faulty func(Fault)
	// Storing, if not nil, is called once, before the first artifact or object is stored.
	Storing func()
	// Flock locks an open file without waiting: syscall.EWOULDBLOCK if another process
	// holds the lock. nil: the kernel's flock. The cache stays correct with locks that do
	// not exclude other processes, as on some network filesystems.
	Flock func(f *os.File, how int) error
}

// Open opens the cache in the folder path. It creates a missing folder (mode 0700). It fails
// with [*UntrustedError] if another user can put code there, and with [*AccessError] if the
// folder cannot be created or written.
func Open(path string, opts Options) (*Dir, error) {
	d, err := resolve(path, opts)
	if err != nil {
		return nil, err
	}
	if err := d.prepareSafely(); err != nil {
		return nil, err
	}
	return d, nil
}

// resolve returns the cache at path without opening the folder. It fails with [*AccessError] if
// the path cannot be used.
func resolve(path string, opts Options) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &AccessError{Path: path, Op: "resolve", Err: err}
	}
	if hasControl(abs) {
		return nil, &AccessError{Path: abs, Op: "use", Err: errControl}
	}
	return newDir(abs, opts), nil
}

// prepareSafely creates missing folders, unless another user could change them.
func (d *Dir) prepareSafely() error {
	missing, unsafe := d.checkTrust()
	switch {
	case as[*UntrustedError](unsafe):
		return unsafe
	case unsafe == nil && !missing:
		return d.tag()
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil { // a more specific error than unsafe
		return &AccessError{Path: d.path, Op: "make", Err: err}
	}
	if unsafe != nil {
		return unsafe
	}
	return d.remake()
}

// remake creates the folders of the cache and checks them: in a shared folder another user
// may have created one of them first.
func (d *Dir) remake() error {
	if err := d.prepare(); err != nil {
		return err
	}
	_, err := d.checkTrust()
	return err
}

// as reports whether err or an error that it wraps is of type T.
func as[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

func newDir(path string, opts Options) *Dir {
	d := &Dir{
		path: path, base: filepath.Join(path, layout), guard: newGuard(),
		trustForeign: opts.TrustForeign, limits: opts.Limits, faulty: opts.Faulty, flock: flockFile,
	}
	if opts.Flock != nil {
		d.flock = opts.Flock
	}
	d.storing = sync.OnceFunc(func() {
		if opts.Storing != nil {
			opts.Storing()
		}
	})
	return d
}

// folders returns the names of the fixed folders directly below base.
func folders() []string { return []string{"record", "blob", "artifact", "lock", "stage", "log"} }

// prepare creates the fixed folders. It writes nothing if all of them exist, so that a
// prebuilt cache on a read-only filesystem opens too.
func (d *Dir) prepare() error {
	for _, sub := range folders() {
		if err := os.MkdirAll(filepath.Join(d.base, sub), 0o700); err != nil {
			return &AccessError{Path: d.path, Op: "make " + sub + " in", Err: err}
		}
	}
	return d.tag()
}

// tag writes the file by which backup programs recognize a cache.
func (d *Dir) tag() error {
	tag := d.tagPath()
	if _, err := os.Lstat(tag); err == nil {
		return nil
	}
	if err := os.WriteFile(tag, []byte(tagText), 0o644); err != nil {
		return &AccessError{Path: d.path, Op: "write to", Err: err}
	}
	return nil
}

// Path returns the folder given to [Open], absolute.
func (d *Dir) Path() string { return d.path }

func (d *Dir) tagPath() string { return filepath.Join(d.path, "CACHEDIR.TAG") }

// LogPath returns the path of the log of the action named key.
func (d *Dir) LogPath(key Key) string {
	return filepath.Join(d.base, "log", string(key)+".log")
}

// WriteLog stores the output of a compiler as the log of the action named key.
func (d *Dir) WriteLog(key Key, text []byte) error { return d.writeFile(d.LogPath(key), text) }

// MemoPath returns the file with the memoized digests of source files, "" if the cache
// cannot have one.
func (d *Dir) MemoPath() string {
	if d.unwritable != nil {
		return ""
	}
	path := filepath.Join(d.base, "filehash")
	st, err := lstat(path)
	if err != nil {
		return path
	}
	if err := d.admit(path, &st); err != nil { // digests that another user may have written
		d.quarantineIrregular(path, err)
		if d.readOnly {
			return ""
		}
	}
	return path
}

// SourcesPath returns the folder to which the source tree that a program contains is extracted
// for compilers.
func (d *Dir) SourcesPath() string { return filepath.Join(d.base, "source") }

// AccessError reports a cache folder that cannot be created, read or written.
type AccessError struct {
	Path, Op string
	Err      error
}

func (e *AccessError) Error() string {
	hint := "choose another folder with AITER_JIT_DIR"
	if errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT) {
		hint = "free some space (aiterctl clean-cache), or " + hint
	}
	return fmt.Sprintf("cannot %s the cache folder %s: %v; %s", e.Op, shown(e.Path), e.Err, hint)
}

// Unwrap returns the system's error.
func (e *AccessError) Unwrap() error { return e.Err }

// errControl reports a name that a compiler's dependency file cannot contain.
var errControl = errors.New("its name has a control character, such as a newline")

func hasControl(path string) bool { return strings.ContainsFunc(path, unicode.IsControl) }

// shown returns a path for messages. It is one line for each path.
func shown(path string) string {
	if hasControl(path) {
		return strconv.Quote(path)
	}
	return path
}
