package aitercmd

import (
	"context"
	"io"
	"log/slog"
	"os"
	"regexp"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/trace"
)

// app is one run of the program: its outputs, and the flags that all commands share.
type app struct {
	program  Program
	commands *regexp.Regexp // commands of aiterctl in texts; nil if the program is aiterctl

	in     io.Reader      // the Enter key of watch; nil: no input
	out    io.Writer      // results
	width  int            // characters in a line of out, 0: no limit
	err    *term.Terminal // all other text
	getenv func(string) string

	args []string // of the command line

	// operator is the operator that a command line of test, bench, tune, run or profile names, "" if it names none.
	operator string

	roots                []string
	aiter                string
	noBuiltin            bool
	config, cacheDir     string
	cachePath, maxSize   string // in the format of AITER_JIT_PATH and AITER_JIT_MAX_SIZE
	cacheSize            int64  // maxSize in bytes, 0 without the flag
	json, verbose, quiet bool
	logLevel, color      string
	log                  *slog.Logger // set by prepare

	trace *trace.Recorder // of the command profile, else nil
}

// settings returns the shared flags as settings. The environment supplies unset ones.
func (a *app) settings() settings.Settings {
	return settings.Settings{
		CacheDir: a.cacheDir, Path: settings.SplitPath(a.cachePath), Limits: cache.Limits{Size: a.cacheSize},
		Sources: a.program.Modules, Roots: a.roots, NoBuiltin: a.noBuiltin || a.program.NoBuiltin, Config: a.config, Getenv: a.getenv,
		Remote: fleet.Open, Logger: a.log,
	}
}

// sourceRoots returns the folders of sources outside of the program.
func (a *app) sourceRoots() []string { return a.settings().SourceRoots() }

// checkSourceRoots returns a usage error if one of the source roots is not a folder.
func (a *app) checkSourceRoots() error {
	for _, root := range a.sourceRoots() {
		if info, err := os.Stat(root); err != nil {
			return usagef("source folder: %w", err)
		} else if !info.IsDir() {
			return usagef("source folder %s: not a folder; give a folder that contains %s or %s", root, settings.ModuleConfig,
				settings.DefaultConfig)
		}
	}
	if _, err := a.settings().ConfigPath(); err != nil {
		return &usageError{err}
	}
	return nil
}

// loadConfig reads the configuration.
func (a *app) loadConfig() (*opconfig.Config, error) {
	if err := a.checkSourceRoots(); err != nil {
		return nil, err
	}
	return a.settings().LoadConfig()
}

// cacheOptions returns the options with which builds open the cache.
func (a *app) cacheOptions() (settings.CacheOptions, error) {
	o, err := a.settings().CacheOptions()
	o.Build = true
	return o, err
}

// openCache opens the cache of builds and the read-only caches. It does not read
// the configuration.
func (a *app) openCache() (*cache.Dir, error) {
	o, err := a.cacheOptions()
	if err != nil {
		return nil, err
	}
	return settings.OpenCache(o)
}

// openManager opens the build manager for commands that call no operator. The caller
// closes it. set sets the fields of the command's own flags; it may be nil.
func (a *app) openManager(ctx context.Context, set func(*settings.Settings)) (*jit.Manager, error) {
	if err := a.checkSourceRoots(); err != nil {
		return nil, err
	}
	s := a.settings()
	if set != nil {
		set(&s)
	}
	return s.OpenManager(ctx)
}

// openRegistry opens the registry for commands that call operators. A call builds for the
// first element of targets whose code its device runs.
func (a *app) openRegistry(ctx context.Context, observer jit.Observer, targets ...target.Target) (*registry.Registry, error) {
	if err := a.checkSourceRoots(); err != nil {
		return nil, err
	}
	s := a.settings()
	return registry.Open(ctx, registry.Options{
		Modules: s.Sources, Roots: s.Roots, Config: s.Config, NoBuiltin: s.NoBuiltin,
		CacheDir: s.CacheDir, Path: s.Path, Limits: s.Limits, Getenv: a.withoutReload,
		Targets: append([]target.Target{}, targets...), Observer: observer,
		Remote: s.Remote, Logger: s.Logger, Trace: a.trace, References: a.program.references(),
	})
}

// withoutReload returns the value of an environment variable. It returns "" for AITER_RELOAD,
// because only services reload modules.
func (a *app) withoutReload(name string) string {
	if name == "AITER_RELOAD" {
		return ""
	}
	return a.getenv(name)
}

// openDevices opens the machine's devices.
func (a *app) openDevices() (*device.Devices, error) {
	return device.Open(device.Options{Getenv: a.getenv})
}
