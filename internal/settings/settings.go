// Package settings opens build managers. It resolves the fields that the caller sets
// and the environment variables for unset fields, opens the kernel cache with its
// read-only caches, and reads the configuration.
package settings

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// DefaultConfig is the path of the configuration in the source tree of aiter.
const DefaultConfig = "config/opt_compiler.toml"

// SupportModule is the module of the support library. The libraries of all modules
// call it. It is built like any other module, for the CPU.
const SupportModule = "module_aiter_ffi"

// SupportRequest returns the request for the support library.
func SupportRequest() jit.Request {
	return jit.Request{Module: SupportModule, Target: target.Host()}
}

// Settings of a build manager. A field that is set replaces its environment
// variable. The variable replaces the default.
type Settings struct {
	CacheDir    string        // AITER_JIT_DIR; see [CacheDir]
	Path        []string      // AITER_JIT_PATH: read-only caches; nil: the variable decides
	Limits      cache.Limits  // AITER_JIT_MAX_SIZE, _MAX_AGE, _MAX_COUNT; see [Limits]
	Roots       []string      // AITER_META_DIR: folders with sources; nil: the variable decides
	Config      string        // AITER_CONFIG: the configuration in the only root, relative to it
	Sources     []Source      // modules besides those of aiter
	AIter       string        // AITER_CHECKOUT: the absolute path of a checkout of AMD's AIter; see [CheckoutVariable]
	NoBuiltin   bool          // leave out the modules in the program, except the support library
	Jobs        int           // MAX_JOBS: compilers at a time
	Rebuild     bool          // AITER_REBUILD: compile everything again
	NoCompile   bool          // AITER_NO_COMPILE: never run a compiler
	Trust       bool          // AITER_TRUST_JIT_DIR: use caches that other users can change
	Timeout     time.Duration // of one compiler run
	LockTimeout time.Duration // of the wait for a build of another process
	// Remote opens the source of sets that AITER_JIT_REMOTE names, such as fleet.Open; nil: the variable has no effect.
	Remote jit.OpenSource
	// Executor opens the build farm that ExecutorAddress (AITER_JIT_EXECUTOR) names, such as buildfarm.Open; nil: both have no effect.
	Executor        jit.OpenExecutor
	ExecutorAddress string
	Observer        jit.Observer // receives the events of builds; may be nil
	Logger          *slog.Logger // nil: [slog.Default], with the level of AITER_LOG_LEVEL if it is set

	// Getenv reads an environment variable; nil: os.Getenv.
	Getenv func(string) string
}

var errCompiles = errors.New("it contradicts AITER_REBUILD (Options.Rebuild, --force), which compiles; unset one of them")

// Resolve fills unset fields from the environment. The error joins an
// *EnvironmentError for each variable with an invalid value.
func (s Settings) Resolve() (Settings, error) {
	s.Roots = s.SourceRoots()
	var err error
	s.Config, err = s.ConfigPath()
	if s.Path == nil {
		s.Path = SplitPath(s.env("AITER_JIT_PATH"))
	}
	errs := []error{
		err,
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

// env returns the value of an environment variable. Configurations name [CheckoutVariable], so AIter is its value.
func (s Settings) env(name string) string {
	if name == CheckoutVariable && s.AIter != "" {
		return s.AIter
	}
	if s.Getenv == nil {
		return os.Getenv(name)
	}
	return s.Getenv(name)
}

// OpenManager resolves the settings, opens the cache, reads the configuration and
// returns a build manager for them. The caller closes it.
func (s Settings) OpenManager(ctx context.Context) (*jit.Manager, error) {
	s, err := s.Resolve()
	if err != nil {
		return nil, err
	}
	var config *opconfig.Config
	var all sources
	var reading errgroup.Group // in parallel with opening the cache, which waits for the disk
	reading.Go(func() (err error) {
		if all, err = s.readSources(); err == nil {
			config, err = all.join()
		}
		return err
	})
	o := s.cacheOptions()
	o.Build, o.Faulty = true, s.reportFault
	store, err := OpenCache(o)
	if err != nil {
		return nil, err
	}
	source, err := s.openSource(store)
	if err != nil {
		return nil, err
	}
	executor, err := s.openExecutor(store)
	if err != nil {
		return nil, err
	}
	memo := filehash.Open(store.MemoPath())
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	trees, err := all.trees(store, memo)
	if err != nil {
		return nil, err
	}
	return jit.New(jit.Options{
		Config: config, Trees: trees, Cache: store, Memo: memo,
		Finder: &toolchain.Finder{Env: s.env, Memo: memo},
		Jobs:   s.Jobs, Timeout: s.Timeout, LockTimeout: s.LockTimeout,
		Force: s.Rebuild, NoCompile: s.NoCompile, Source: source, Executor: executor, Observer: s.Observer, Logger: s.Logger,
	}), nil
}

// openSource opens the source of sets, nil if there is none.
func (s Settings) openSource(store *cache.Dir) (jit.Source, error) {
	if s.Remote != nil {
		return s.Remote(jit.SourceOptions{Cache: store, Getenv: s.env, Logger: s.Logger})
	}
	if s.env("AITER_JIT_REMOTE") != "" {
		s.Logger.Warn("AITER_JIT_REMOTE is ignored, because this program does not pull sets; it needs registry.Options{Remote: fleet.Open}")
	}
	return nil, nil
}

// openExecutor opens the build farm, nil if there is none.
func (s Settings) openExecutor(store *cache.Dir) (jit.Executor, error) {
	address := cmp.Or(s.ExecutorAddress, s.env("AITER_JIT_EXECUTOR"))
	if s.Executor == nil || address == "" || s.NoCompile {
		return nil, nil
	}
	return s.Executor(jit.ExecutorOptions{Address: address, Cache: store, Getenv: s.env, Logger: s.Logger})
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

// reportFault reports a damaged entry of the cache to the observer.
func (s Settings) reportFault(f cache.Fault) {
	if s.Observer != nil {
		s.Observer.Observe(jit.Event{Step: jit.Quarantined, Reason: f.Path + ": " + f.Reason})
	}
}
