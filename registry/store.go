package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/cache"
)

// CacheOptions of [OpenCache].
type CacheOptions struct {
	Dir    string              // "": see [CacheDir]
	Path   []string            // caches to read below it
	Limits cache.Limits        // as they are
	Trust  bool                // use folders that other users can change
	Faulty func(cache.Fault)   // is told of what is found corrupt, as the log is; may be nil
	Getenv func(string) string // required
	// Build says that something may have to be stored: a cache that cannot be
	// written is read then, below a temporary one.
	Build bool
}

// OpenCache opens the kernel cache over the read-only caches of Path. One of
// them that is missing is passed over with a warning, and one that others can
// write to is refused.
//
// To build, it takes a private folder below that for temporary files where
// there is no home, or the cache cannot be written, and warns once. Where that
// cannot be written either, and there is something to read, it opens that alone:
// only what has to be stored fails.
func OpenCache(ctx context.Context, o CacheOptions) (*cache.Dir, error) {
	tiers, err := o.tiers(ctx)
	if err != nil {
		return nil, err
	}
	store, err := o.open(ctx)
	if o.Build && err == nil {
		err = store.Writable()
	}
	if o.Build && unusable(err) {
		store, err = o.instead(ctx, err, len(tiers) > 0)
	}
	if err != nil {
		return nil, err
	}
	store.AddReadOnly(tiers...)
	return store, nil
}

// Folder returns the folder of the cache that [OpenCache] gives to build, and makes
// nothing there. Where nothing can be stored it is the one that was asked for; the
// error is an *EnvironmentError where there is none.
func (o CacheOptions) Folder(ctx context.Context) (string, error) {
	dir, err := CacheDir(o.Dir, o.Getenv)
	bad := err
	if err == nil {
		bad = cache.Probe(dir, o.cache(ctx))
	}
	if tmp := o.temporaryDir(); unusable(bad) && o.checkTMPDIR() == nil && cache.Probe(tmp, cache.Options{}) == nil {
		return tmp, nil
	}
	return dir, err
}

func (o CacheOptions) open(ctx context.Context) (*cache.Dir, error) {
	dir, err := CacheDir(o.Dir, o.Getenv)
	if err != nil {
		return nil, err
	}
	store, err := cache.Open(dir, o.cache(ctx))
	if err != nil && !o.Build && unusable(err) {
		if tier, bad := cache.OpenReadOnly(dir, o.cache(ctx)); bad == nil {
			return tier, nil
		}
	}
	return store, err
}

// tiers opens the caches to read.
func (o CacheOptions) tiers(ctx context.Context) ([]*cache.Dir, error) {
	var tiers []*cache.Dir
	for _, dir := range o.Path {
		t, err := cache.OpenReadOnly(dir, o.cache(ctx))
		var none *cache.ReadOnlyError
		switch {
		case errors.As(err, &none):
			zerolog.Ctx(ctx).Warn().Str("folder", dir).Err(err).Msg("a cache of AITER_JIT_PATH is passed over")
		case err != nil:
			return nil, err
		default:
			tiers = append(tiers, t)
		}
	}
	return tiers, nil
}

// unusable reports whether the error means that this user can store nothing
// there.
func unusable(err error) bool {
	var none *EnvironmentError
	var foreign *cache.UntrustedError
	if errors.As(err, &none) || errors.As(err, &foreign) && foreign.RootOnly() {
		return true
	}
	return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) || cannotBeThere(err)
}

// cannotBeThere reports whether a folder is not there and its parents cannot be made:
// a home of /dev/null, as service users have it. What lies in its own place is for
// its owner to look at.
func cannotBeThere(err error) bool {
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

// instead opens a private temporary folder, over what can be read of the cache
// that cannot be written. Where that fails too it is a cache that stores nothing,
// if there is any to read.
func (o CacheOptions) instead(ctx context.Context, why error, tiers bool) (*cache.Dir, error) {
	dir, below := o.readable(ctx)
	store, err := o.temporary(ctx)
	switch {
	case err == nil:
		zerolog.Ctx(ctx).Warn().Str("folder", store.Path()).AnErr("cause", why).
			Msg("the kernel cache cannot be written: what is built goes into a temporary folder; set AITER_JIT_DIR to one that lasts, and AITER_JIT_PATH to those that are only read")
	case tiers || len(below) > 0:
		why = errors.Join(why, err)
		store = cache.Unwritable(dir, why, o.cache(ctx))
		zerolog.Ctx(ctx).Debug().Err(why).Msg("no folder can be written: kernels are read from the caches below, and nothing can be built")
	default:
		return nil, errors.Join(why, err)
	}
	store.AddReadOnly(below...)
	return store, nil
}

// readable is the folder of the cache that cannot be written, and that cache,
// if there is one to read.
func (o CacheOptions) readable(ctx context.Context) (dir string, below []*cache.Dir) {
	dir, err := CacheDir(o.Dir, o.Getenv)
	if err != nil {
		return o.temporaryDir(), nil
	}
	if d, err := cache.OpenReadOnly(dir, o.cache(ctx)); err == nil {
		below = append(below, d)
	}
	return dir, below
}

// temporaryDir is the folder for a cache in the place of one that cannot be
// written.
func (o CacheOptions) temporaryDir() string {
	return filepath.Join(firstOf(o.Getenv("TMPDIR"), os.TempDir()), fmt.Sprintf("aiter-jit-%d", os.Getuid()))
}

// checkTMPDIR returns an error if the folder for temporary files does not exist. A cache
// that made the folder would hide a mistake on which other programs fail.
func (o CacheOptions) checkTMPDIR() error {
	dir := o.Getenv("TMPDIR")
	if _, err := os.Stat(dir); dir != "" && errors.Is(err, fs.ErrNotExist) {
		return &EnvironmentError{"TMPDIR", dir, errNoFolder}
	}
	return nil
}

var errNoFolder = errors.New("no such folder; make it, or unset TMPDIR")

// temporary opens that folder.
func (o CacheOptions) temporary(ctx context.Context) (*cache.Dir, error) {
	if err := o.checkTMPDIR(); err != nil {
		return nil, err
	}
	dir := o.temporaryDir()
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() { // somebody else was there first
		return nil, &cache.AccessError{Path: dir, Op: "use", Err: syscall.ENOTDIR}
	}
	// Its name is known to all and anybody may make it first: who trusts the cache
	// that was asked for has not said so of this one.
	own := o.cache(ctx)
	own.TrustForeign = false
	store, err := cache.Open(dir, own)
	if err == nil {
		err = store.Writable()
	}
	return store, err
}

// cache are the options of one folder.
func (o CacheOptions) cache(ctx context.Context) cache.Options {
	log := zerolog.Ctx(ctx)
	return cache.Options{TrustForeign: o.Trust, Limits: o.Limits, Faulty: func(f cache.Fault) {
		log.Warn().Str("path", f.Path).Str("reason", f.Reason).Msg("quarantine")
		if o.Faulty != nil {
			o.Faulty(f)
		}
	}}
}

// SplitPath splits a list of folders as AITER_JIT_PATH has it, with colons.
func SplitPath(list string) []string {
	var dirs []string
	for _, dir := range filepath.SplitList(list) {
		if dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Limits fills the fields that are 0 from the environment, and what that leaves
// open from [cache.DefaultLimits]. In the environment "0" is no limit, in a
// field any negative number. The error is an *EnvironmentError.
func Limits(l cache.Limits, getenv func(string) string) (cache.Limits, error) {
	preset := cache.DefaultLimits()
	size, errS := limit(l.Size, getenv, "AITER_JIT_MAX_SIZE", preset.Size, cache.ParseSize)
	age, errA := limit(l.Age, getenv, "AITER_JIT_MAX_AGE", preset.Age, cache.ParseAge)
	count, errC := limit(l.Count, getenv, "AITER_JIT_MAX_COUNT", preset.Count, parseCount)
	return cache.Limits{Size: size, Age: age, Count: count}, errors.Join(errS, errA, errC)
}

func limit[N int | int64 | time.Duration](given N, getenv func(string) string, name string, preset N, parse func(string) (N, error)) (N, error) {
	v := strings.TrimSpace(getenv(name))
	switch {
	case given < 0 || given == 0 && v == "0":
		return 0, nil
	case given > 0:
		return given, nil
	case v == "":
		return preset, nil
	}
	n, err := parse(v)
	if err != nil {
		return 0, &EnvironmentError{name, v, err}
	}
	return n, nil
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, &cache.LimitError{What: "number", Value: s, Want: "a number of artifacts above 0"}
	}
	return n, nil
}
