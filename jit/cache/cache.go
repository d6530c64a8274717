// Package cache keeps what the JIT has built: small records named by the key
// of the action that made them, and files named by their own SHA-256. Nothing
// in it changes once published, and everything is published by a rename, so a
// reader sees a whole entry or none.
//
// Layout below the folder given to [Open]:
//
//	CACHEDIR.TAG            tells backup programs to pass by
//	v1/record/KIND/ab/KEY   records (action results, dependency lists)
//	v1/blob/ab/SHA256       object files
//	v1/artifact/ID/         one folder an artifact: NAME.so and artifact.json
//	v1/lock/KEY             flock files, one a key
//	v1/stage/               unfinished work, one folder a job
//	v1/log/                 what the compilers printed, for failed units
//	v1/quarantine/          what was found corrupt
//	v1/source/DIGEST/       sources that came inside a program, laid out
//	v1/counts               what builds found and did; see [Dir.Count]
//	v1/trimmed              its time is that of the last [Dir.Trim]
//
// A cache may lie over others that are only read; see [Dir.Over].
package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// layout names the version of the folder structure; another version lives
// beside it instead of being converted.
const layout = "v1"

const tagText = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of compiled GPU kernels (aiter). It can be removed at any time.\n"

// Dir is a cache folder. Its methods may be called from any goroutine, and
// from any number of processes on the same folder.
type Dir struct {
	path string // the folder itself
	base string // path/v1

	trustForeign bool
	readOnly     bool   // it is a tier, or unwritable
	unwritable   error  // why there is no folder for it; see [Unwritable]
	tiers        []*Dir // below it, in the order in which they are looked at
	limits       Limits
	faulty       func(Fault)

	flock func(f *os.File, how int) error // flockFile, or a test's

	mu    sync.Mutex
	turns map[Key]chan struct{} // see turn
	gone  map[string]bool       // records of tiers that are overlooked
}

// Options of [Open].
type Options struct {
	// TrustForeign accepts a folder that another user owns or can write to.
	// Loading from such a folder runs that user's code.
	TrustForeign bool
	// Limits are kept by [Dir.Trim].
	Limits Limits
	// Faulty, if not nil, is told of what was found corrupt, from any goroutine.
	Faulty func(Fault)
	// Flock locks an open file without waiting: syscall.EWOULDBLOCK when another
	// has it. nil: the kernel's flock. The cache stays correct with one that
	// keeps nobody out, as on some network filesystems.
	Flock func(f *os.File, how int) error
}

// Open opens the cache folder path, making it (mode 0700) when it is missing.
// It fails with [*UntrustedError] when somebody else could have put code
// there, and with [*AccessError] when it cannot be made or written.
func Open(path string, opts Options) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &AccessError{Path: path, Op: "resolve", Err: err}
	}
	d := newDir(abs, opts)
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, &AccessError{Path: abs, Op: "make", Err: err}
	}
	if !opts.TrustForeign {
		if err := d.checkOwner(abs, os.Stat); err != nil {
			return nil, err
		}
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
	if !opts.TrustForeign {
		return d, d.checkFolders()
	}
	return d, nil
}

func newDir(path string, opts Options) *Dir {
	d := &Dir{path: path, base: filepath.Join(path, layout), trustForeign: opts.TrustForeign, limits: opts.Limits, faulty: opts.Faulty, flock: flockFile}
	if opts.Flock != nil {
		d.flock = opts.Flock
	}
	return d
}

// folders are those directly below base that are always there.
func folders() []string { return []string{"record", "blob", "artifact", "lock", "stage", "log"} }

// checkFolders refuses folders of the cache that somebody else could have put
// there, such as symlinks to a place that others write to.
func (d *Dir) checkFolders() error {
	for _, sub := range append(folders(), "", "source") {
		err := d.checkOwner(filepath.Join(d.base, sub), os.Lstat)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// prepare makes the fixed folders. It writes nothing when they are all there,
// so that a prebuilt cache on a read-only filesystem opens too.
func (d *Dir) prepare() error {
	for _, sub := range folders() {
		if err := os.MkdirAll(filepath.Join(d.base, sub), 0o700); err != nil {
			return &AccessError{Path: d.path, Op: "make " + sub + " in", Err: err}
		}
	}
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

// LogPath returns where the log of the action named key belongs.
func (d *Dir) LogPath(key Key) string {
	return filepath.Join(d.base, "log", string(key)+".log")
}

// MemoPath returns the file in which digests of source files are remembered, ""
// where none can be.
func (d *Dir) MemoPath() string {
	if d.unwritable != nil {
		return ""
	}
	return filepath.Join(d.base, "filehash")
}

// SourcesPath returns the folder below which source trees that came inside
// the binary are laid out for the compilers.
func (d *Dir) SourcesPath() string { return filepath.Join(d.base, "source") }

// AccessError reports a cache folder that cannot be made, read or written.
type AccessError struct {
	Path, Op string
	Err      error
}

func (e *AccessError) Error() string {
	hint := "choose another folder with AITER_JIT_DIR"
	if errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT) {
		hint = "free some space (aiterctl clean-cache), or " + hint
	}
	return fmt.Sprintf("cannot %s the cache folder %s: %v; %s", e.Op, e.Path, e.Err, hint)
}

// Unwrap returns the system's error.
func (e *AccessError) Unwrap() error { return e.Err }
