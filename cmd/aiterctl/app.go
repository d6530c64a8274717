package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
)

// app is one run of the program: its outputs, and the flags that all commands share.
type app struct {
	out    io.Writer      // results
	err    *term.Terminal // all other text
	getenv func(string) string

	// operator is the one that a command line of test, bench or run names, "" if none.
	operator string

	root, config, cacheDir string
	cachePath, maxSize     string // in the format of AITER_JIT_PATH and AITER_JIT_MAX_SIZE
	cacheSize              int64  // maxSize in bytes, 0 without the flag
	json, verbose, quiet   bool
	logLevel, color        string
	log                    *slog.Logger // set by prepare
}

// settings returns the shared flags as settings. The environment supplies unset ones.
func (a *app) settings() settings.Settings {
	return settings.Settings{
		CacheDir: a.cacheDir, Path: settings.SplitPath(a.cachePath), Limits: cache.Limits{Size: a.cacheSize},
		Root: a.root, Config: a.config, Getenv: a.getenv, Logger: a.log,
	}
}

// sourceRoot returns the folder of the checkout, "" for the sources in the program.
func (a *app) sourceRoot() string { return a.settings().SourceRoot() }

// checkSourceRoot returns a usage error if the checkout is not a folder.
func (a *app) checkSourceRoot() error {
	root := a.sourceRoot()
	if root == "" {
		return nil
	}
	if info, err := os.Stat(root); err != nil {
		return usagef("source folder: %w", err)
	} else if !info.IsDir() {
		return usagef("source folder %s is not a folder; give a checkout with the folders config and csrc", root)
	}
	return nil
}

// loadConfig reads the configuration.
func (a *app) loadConfig() (*opconfig.Config, error) {
	if err := a.checkSourceRoot(); err != nil {
		return nil, err
	}
	return a.settings().LoadConfig()
}

// cacheOptions are the options with which builds open the cache.
func (a *app) cacheOptions() (settings.CacheOptions, error) {
	o, err := a.settings().CacheOptions()
	o.Build = true
	return o, err
}

// openCache opens the cache of builds and the read-only caches. It does not read
// the configuration.
func (a *app) openCache(ctx context.Context) (*cache.Dir, error) {
	o, err := a.cacheOptions()
	if err != nil {
		return nil, err
	}
	return settings.OpenCache(o)
}

// openManager opens the build manager for commands that call no operator. The caller
// closes it. set sets the fields of the command's own flags; it may be nil.
func (a *app) openManager(ctx context.Context, set func(*settings.Settings)) (*jit.Manager, error) {
	if err := a.checkSourceRoot(); err != nil {
		return nil, err
	}
	s := a.settings()
	if set != nil {
		set(&s)
	}
	return s.OpenManager(ctx)
}

// openRegistry opens the registry for commands that call operators. A call builds for the
// first of targets that its device runs.
func (a *app) openRegistry(ctx context.Context, observer jit.Observer, targets ...target.Target) (*registry.Registry, error) {
	if err := a.checkSourceRoot(); err != nil {
		return nil, err
	}
	s := a.settings()
	return registry.Open(ctx, registry.Options{
		Root: s.Root, Config: s.ConfigPath(), CacheDir: s.CacheDir, Path: s.Path, Limits: s.Limits, Getenv: a.withoutReload,
		Targets: append([]target.Target{}, targets...), Observer: observer,
		Logger: s.Logger,
	})
}

// withoutReload returns the value of an environment variable, "" for AITER_RELOAD, which
// is for services.
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
