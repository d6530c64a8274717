// Package settings opens build managers. It resolves the fields that the caller sets
// and the environment variables for unset fields, opens the kernel cache with its
// read-only caches, and reads the configuration.
package settings

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aiter-go/aiter"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// DefaultConfig is the path of the configuration in a source tree.
const DefaultConfig = "config/opt_compiler.toml"

// SupportModule is the module of the support library. The libraries of all modules
// call it. It is built like any other module, for the CPU.
const SupportModule = "module_aiter_ffi"

// SupportRequest is the part request of the support library.
func SupportRequest() jit.Request {
	return jit.Request{Module: SupportModule, Target: target.Host()}
}

// Settings of a build manager. A field that is set wins over its environment
// variable, and the variable wins over the default.
type Settings struct {
	CacheDir    string        // AITER_JIT_DIR; see [CacheDir]
	Path        []string      // AITER_JIT_PATH: read-only caches; nil: the variable decides
	Limits      cache.Limits  // AITER_JIT_MAX_SIZE, _MAX_AGE, _MAX_COUNT; see [Limits]
	Root        string        // AITER_META_DIR: the checkout; "": the sources in the program
	Config      string        // AITER_CONFIG: the configuration, relative to the source tree
	Jobs        int           // MAX_JOBS: compilers at a time
	Rebuild     bool          // AITER_REBUILD: compile everything again
	NoCompile   bool          // AITER_NO_COMPILE: never run a compiler
	Trust       bool          // AITER_TRUST_JIT_DIR: use caches that other users can change
	Timeout     time.Duration // of one compiler run
	LockTimeout time.Duration // of the wait for a build of another process
	Observer    jit.Observer  // receives the events of builds; may be nil
	Logger      *slog.Logger  // AITER_LOG_LEVEL: level of [slog.Default], the logger of a field that is nil

	// Getenv reads an environment variable; nil: os.Getenv.
	Getenv func(string) string
}

var errCompiles = errors.New("it contradicts AITER_REBUILD (Options.Rebuild, --force), which compiles")

// Resolve fills unset fields from the environment. The error joins an
// *EnvironmentError for each variable with an invalid value.
func (s Settings) Resolve() (Settings, error) {
	s.Root, s.Config = s.SourceRoot(), s.ConfigPath()
	if s.Path == nil {
		s.Path = SplitPath(s.env("AITER_JIT_PATH"))
	}
	errs := []error{
		readSwitch(&s.Trust, "AITER_TRUST_JIT_DIR", s.env),
		readSwitch(&s.Rebuild, "AITER_REBUILD", s.env),
		readSwitch(&s.NoCompile, "AITER_NO_COMPILE", s.env),
		readJobs(&s.Jobs, s.env),
	}
	if s.NoCompile && s.Rebuild {
		errs = append(errs, Contradiction("AITER_NO_COMPILE", s.env, errCompiles))
	}
	var errLimits, errLog error
	s.Limits, errLimits = Limits(s.Limits, s.env)
	if s.Logger == nil {
		s.Logger, errLog = defaultLogger(s.env)
	}
	return s, errors.Join(append(errs, errLimits, errLog)...)
}

// env returns the value of an environment variable.
func (s Settings) env(name string) string {
	if s.Getenv == nil {
		return os.Getenv(name)
	}
	return s.Getenv(name)
}

// SourceRoot returns the folder of the checkout, "" for the sources in the program.
func (s Settings) SourceRoot() string { return cmp.Or(s.Root, s.env("AITER_META_DIR")) }

// ConfigPath returns the slash-separated path of the configuration, relative to the
// source tree. It makes an absolute path inside the checkout relative.
func (s Settings) ConfigPath() string {
	path := cmp.Or(s.Config, s.env("AITER_CONFIG"), DefaultConfig)
	if root, err := filepath.Abs(s.SourceRoot()); s.SourceRoot() != "" && err == nil && filepath.IsAbs(path) {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
	}
	return filepath.ToSlash(path)
}

// LoadConfig reads the configuration of the source tree. The errors are those of
// [opconfig.Load].
func (s Settings) LoadConfig() (*opconfig.Config, error) {
	var files fs.FS = aiter.Sources
	if root := s.SourceRoot(); root != "" {
		files = os.DirFS(root)
	}
	return opconfig.Load(files, s.ConfigPath(), opconfig.Options{Env: func(name string) (string, bool) {
		v := s.env(name)
		return v, v != ""
	}})
}

// OpenManager resolves the settings, opens the cache, reads the configuration and
// returns their build manager. The caller closes it.
func (s Settings) OpenManager(ctx context.Context) (*jit.Manager, error) {
	s, err := s.Resolve()
	if err != nil {
		return nil, err
	}
	var config *opconfig.Config
	var reading errgroup.Group // in parallel with opening the cache, which waits for the disk
	reading.Go(func() (err error) {
		config, err = s.LoadConfig()
		return err
	})
	o := s.cacheOptions()
	o.Build, o.Faulty = true, s.reportFault
	store, err := OpenCache(o)
	if err != nil {
		return nil, err
	}
	memo := filehash.Open(store.MemoPath())
	tree, err := s.tree(store, memo)
	if err != nil {
		return nil, err
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	return jit.New(jit.Options{
		Config: config, Tree: tree, Cache: store, Memo: memo,
		Finder: &toolchain.Finder{Env: s.env, Memo: memo},
		Jobs:   s.Jobs, Timeout: s.Timeout, LockTimeout: s.LockTimeout,
		Force: s.Rebuild, NoCompile: s.NoCompile, Observer: s.Observer, Logger: s.Logger,
	}), nil
}

// CacheOptions returns the options with which the settings open the kernel cache.
// The error joins an *EnvironmentError for each variable with an invalid value.
func (s Settings) CacheOptions() (CacheOptions, error) {
	if s.Path == nil {
		s.Path = SplitPath(s.env("AITER_JIT_PATH"))
	}
	errTrust := readSwitch(&s.Trust, "AITER_TRUST_JIT_DIR", s.env)
	var err error
	s.Limits, err = Limits(s.Limits, s.env)
	return s.cacheOptions(), errors.Join(err, errTrust)
}

func (s Settings) cacheOptions() CacheOptions {
	return CacheOptions{Dir: s.CacheDir, Path: s.Path, Limits: s.Limits, Trust: s.Trust, Getenv: s.env, Logger: s.Logger}
}

// reportFault sends the observer an event for damage in the cache.
func (s Settings) reportFault(f cache.Fault) {
	if s.Observer != nil {
		s.Observer.Observe(jit.Event{Step: jit.Quarantined, Reason: f.Path + ": " + f.Reason})
	}
}

// tree opens the source tree.
func (s Settings) tree(store *cache.Dir, memo *filehash.Memo) (deps.Tree, error) {
	if s.Root != "" {
		return deps.NewDirTree(s.Root, memo)
	}
	return deps.NewEmbeddedTree(aiter.Sources, store), nil
}
