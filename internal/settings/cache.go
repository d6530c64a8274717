package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/sys"
)

// CacheOptions of [OpenCache].
type CacheOptions struct {
	Dir    string              // see [CacheDir]
	Path   []string            // read-only caches
	Limits cache.Limits        // not filled from the environment
	Trust  bool                // use folders that other users can change
	Faulty func(cache.Fault)   // is called for each damaged entry; may be nil
	Getenv func(string) string // required
	Logger *slog.Logger        // receives warnings; nil: no log
	Build  bool                // the caller stores results: if Dir cannot be written, use a temporary folder
}

// OpenCache opens the kernel cache and the read-only caches of Path. It logs a warning for
// a read-only cache that does not exist, and continues without it. It refuses one that
// other users can write to.
//
// With Build, a private folder below the folder for temporary files replaces a cache
// that cannot be written. One warning is logged before the first result is stored there. If
// neither can be written but another cache can be read, OpenCache returns a cache in which
// only storing fails.
//
// On systems other than Linux it returns a cache in which nothing is found or stored.
func OpenCache(o CacheOptions) (*cache.Dir, error) {
	if err := sys.Unsupported("the kernel cache"); err != nil {
		dir, _ := CacheDir(o.Dir, o.Getenv)
		return cache.Unwritable(dir, err, o.cache()), nil
	}
	readOnly, err := o.openReadOnly()
	if err != nil {
		return nil, err
	}
	store, err := o.open()
	if o.Build && err == nil {
		err = store.Writable()
	}
	if o.Build && unusable(err) {
		store, err = o.openFallback(err, len(readOnly) > 0)
	}
	if err != nil {
		return nil, err
	}
	store.AddReadOnly(readOnly...)
	return store, nil
}

// Folder returns the folder of the cache that [OpenCache] opens with Build. It creates
// nothing. If no folder can be written, it returns the requested one. The error is an
// *EnvironmentError if no folder is requested.
func (o CacheOptions) Folder() (string, error) {
	dir, err := CacheDir(o.Dir, o.Getenv)
	bad := err
	if err == nil {
		bad = cache.Probe(dir, o.cache())
	}
	if tmp := o.temporaryDir(); unusable(bad) && o.checkTMPDIR() == nil && cache.Probe(tmp, cache.Options{}) == nil {
		return tmp, nil
	}
	return dir, err
}

// open opens the requested cache. Without Build it opens a cache that cannot be
// written read-only.
func (o CacheOptions) open() (*cache.Dir, error) {
	dir, err := CacheDir(o.Dir, o.Getenv)
	if err != nil {
		return nil, err
	}
	store, err := cache.Open(dir, o.cache())
	if err != nil && !o.Build && unusable(err) {
		if readOnly, bad := cache.OpenReadOnly(dir, o.cache()); bad == nil {
			return readOnly, nil
		}
	}
	return store, err
}

// openReadOnly opens the read-only caches of Path.
func (o CacheOptions) openReadOnly() ([]*cache.Dir, error) {
	var list []*cache.Dir
	for _, dir := range o.Path {
		d, err := cache.OpenReadOnly(dir, o.cache())
		var none *cache.ReadOnlyError
		switch {
		case errors.As(err, &none):
			o.log().Warn("a read-only cache of AITER_JIT_PATH is not used", "folder", dir, "error", err)
		case err != nil:
			return nil, err
		default:
			list = append(list, d)
		}
	}
	return list, nil
}

// unusable reports whether an error of opening a folder means that this user cannot store
// anything there.
func unusable(err error) bool {
	var none *EnvironmentError
	var foreign *cache.UntrustedError
	if errors.As(err, &none) || errors.As(err, &foreign) && foreign.RootOnly() {
		return true
	}
	return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) || cannotExist(err)
}

// cannotExist reports whether a folder does not exist and its parents cannot be
// created, as below the home /dev/null of service users. It returns false for a file
// with the name of the folder, which is an error that the user has to see.
func cannotExist(err error) bool {
	var access *cache.AccessError
	if !errors.As(err, &access) || !isAny(err, syscall.ENOTDIR, syscall.ENOENT, syscall.ENAMETOOLONG) {
		return false
	}
	_, err = os.Lstat(access.Path)
	return err != nil
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}

// openFallback opens a private temporary folder in place of the cache that cannot be
// written, and opens that cache read-only. If the temporary folder cannot be written either,
// and a cache can be read, openFallback returns a cache that stores nothing. cause is
// the error of the requested cache; hasReadOnly reports whether AITER_JIT_PATH has caches.
func (o CacheOptions) openFallback(cause error, hasReadOnly bool) (*cache.Dir, error) {
	dir, readable := o.openUnwritable()
	store, err := o.openTemporary(func() {
		o.log().Warn("the kernel cache cannot be written: builds go to a temporary folder; "+
			"set AITER_JIT_DIR to a permanent folder, and AITER_JIT_PATH to read-only caches", "folder", o.temporaryDir(), "cause", cause)
	})
	switch {
	case err == nil:
	case hasReadOnly || len(readable) > 0:
		cause = errors.Join(cause, err)
		store = cache.Unwritable(dir, cause, o.cache())
		o.log().Debug("no folder can be written: kernels are read from the read-only caches, and nothing can be built", "error", cause)
	default:
		return nil, errors.Join(cause, err)
	}
	store.AddReadOnly(readable...)
	return store, nil
}

// openUnwritable returns the folder of the cache that cannot be written. It opens that
// cache read-only if it can be read.
func (o CacheOptions) openUnwritable() (dir string, readable []*cache.Dir) {
	dir, err := CacheDir(o.Dir, o.Getenv)
	if err != nil {
		return o.temporaryDir(), nil
	}
	if d, err := cache.OpenReadOnly(dir, o.cache()); err == nil {
		readable = append(readable, d)
	}
	return dir, readable
}

// temporaryDir returns the folder that replaces a cache that cannot be written.
func (o CacheOptions) temporaryDir() string {
	return filepath.Join(cmp.Or(o.Getenv("TMPDIR"), os.TempDir()), fmt.Sprintf("aiter-jit-%d", os.Getuid()))
}

// checkTMPDIR returns an error if the folder for temporary files does not exist.
// Creating it would hide a mistake that makes other programs fail.
func (o CacheOptions) checkTMPDIR() error {
	dir := o.Getenv("TMPDIR")
	if _, err := os.Stat(dir); dir != "" && errors.Is(err, fs.ErrNotExist) {
		return &EnvironmentError{"TMPDIR", dir, errNoFolder}
	}
	return nil
}

var errNoFolder = errors.New("no such folder; create it, or unset TMPDIR")

// openTemporary opens the temporary folder for writing. It calls storing before the first result
// is stored.
func (o CacheOptions) openTemporary(storing func()) (*cache.Dir, error) {
	if err := o.checkTMPDIR(); err != nil {
		return nil, err
	}
	dir := o.temporaryDir()
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() { // another user created it
		return nil, &cache.AccessError{Path: dir, Op: "use", Err: syscall.ENOTDIR}
	}
	// Other users can guess the name and create the folder first. Trust in the requested
	// cache does not extend to this folder.
	own := o.cache()
	own.TrustForeign, own.Storing = false, storing
	store, err := cache.Open(dir, own)
	if err == nil {
		err = store.Writable()
	}
	return store, err
}

// log returns the logger, which discards everything by default.
func (o CacheOptions) log() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

// cache returns the options of one cache folder.
func (o CacheOptions) cache() cache.Options {
	log := o.log()
	var reported sync.Map // paths of damaged entries in read-only caches; each lookup finds them again
	return cache.Options{TrustForeign: o.Trust, Limits: o.Limits, Faulty: func(f cache.Fault) {
		if _, again := reported.LoadOrStore(f.Path, true); f.Kept && again {
			return
		}
		message := "a damaged entry of the cache was moved to quarantine"
		if f.Kept {
			message = "a damaged entry of a read-only cache is not used; make the cache again with aiterctl build --output"
		}
		log.Warn(message, "path", f.Path, "reason", f.Reason)
		if o.Faulty != nil {
			o.Faulty(f)
		}
	}}
}
