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

// defaultConfig is where a source tree has its configuration.
const defaultConfig = "config/opt_compiler.toml"

// Options of [Open]. The zero value is what a service wants: the sources that
// came with the program, and the environment's word for everything else. A
// field that is set wins over the environment.
type Options struct {
	CacheDir string          // AITER_JIT_DIR; default $XDG_CACHE_HOME/aiter/jit
	Path     []string        // AITER_JIT_PATH: caches that are only read, such as prebuilt ones, looked at after CacheDir
	Limits   cache.Limits    // AITER_JIT_MAX_SIZE, _MAX_AGE, _MAX_COUNT; default [cache.DefaultLimits]; negative: none
	Root     string          // AITER_META_DIR: a checkout to take config and sources from; "": those in the program
	Config   string          // AITER_CONFIG: the configuration, relative to the source tree
	Targets  []target.Target // GPU_ARCHS: what to build for a device, the first that runs there
	Jobs     int             // MAX_JOBS: compilers at a time
	Rebuild  bool            // AITER_REBUILD: compile everything once more
	Trust    bool            // AITER_TRUST_JIT_DIR: use caches that other users can change
	Timeout  time.Duration   // of one compiler run; 0: [jit.DefaultTimeout]
	Wait     time.Duration   // for what another process builds; 0: three times the time limit of a compiler run
	Observer jit.Observer    // is told of each step of a build

	// Verify (AITER_VERIFY) checks every call against the CPU. The arguments are
	// copied to the host, the operator is called and waited for, its CPU build
	// is called on the copies, and whatever the schema says it writes, states
	// and in-place arguments included, is compared with the tolerance that the
	// configuration gives the operator, else that of the element type. Calls on
	// the CPU are run twice, which shows results that differ from run to run, such
	// as those of races. It takes a C++ compiler,
	// host memory for the arguments, and time; it cannot be used while a stream
	// is being captured, nor where others write to the arguments meanwhile.
	Verify bool

	// NoCompile (AITER_NO_COMPILE) takes what was built before, in CacheDir or Path,
	// and never runs a compiler, as where there is none: what is not there, or was
	// made of other sources, is a [*jit.NoCompileError]. It is for services whose
	// images hold prebuilt kernels, and compilers for other reasons. It contradicts
	// Rebuild and Reload.
	NoCompile bool

	// Reload (AITER_RELOAD) watches the configuration and what loaded modules
	// were compiled from, and puts new code in place of the old as soon as it is
	// built. Calls under way finish on the code that they began with; what does
	// not build or load changes nothing and is told by [Registry.ReloadErr]. It
	// takes a checkout (Root). Old code stays in memory, so this is for those who
	// write operators, not for years of service. The support library is loaded
	// once.
	Reload bool

	// Getenv is asked for environment variables; nil: os.Getenv.
	Getenv func(string) string

	err error // what was wrong with the environment
}

// withEnvironment fills the unset fields from the environment.
func (o Options) withEnvironment() Options {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	o.Root = firstOf(o.Root, o.Getenv("AITER_META_DIR"))
	o.Config = firstOf(o.Config, o.Getenv("AITER_CONFIG"), defaultConfig)
	for _, s := range []struct {
		name  string
		field *bool
	}{
		{"AITER_TRUST_JIT_DIR", &o.Trust}, {"AITER_REBUILD", &o.Rebuild}, {"AITER_VERIFY", &o.Verify},
		{"AITER_RELOAD", &o.Reload}, {"AITER_NO_COMPILE", &o.NoCompile},
	} {
		if !*s.field {
			var err error
			*s.field, err = Switch(s.name, o.Getenv)
			o.err = errors.Join(o.err, err)
		}
	}
	if o.NoCompile && (o.Rebuild || o.Reload) {
		o.err = errors.Join(o.err, &EnvironmentError{"AITER_NO_COMPILE", firstOf(o.Getenv("AITER_NO_COMPILE"), "1"), errCompiles})
	}
	if o.Reload && o.Root == "" {
		o.err = errors.Join(o.err, ErrNoCheckout)
	}
	if v := o.Getenv("MAX_JOBS"); v != "" && o.Jobs == 0 {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			o.err = errors.Join(o.err, &EnvironmentError{"MAX_JOBS", v, errors.New("expected a number of compilers, 1 or more")})
		}
		o.Jobs = n
	}
	if v := withoutNative(o.Getenv("GPU_ARCHS")); v != "" && o.Targets == nil {
		list, err := target.ParseList(v)
		if err != nil {
			o.err = errors.Join(o.err, &EnvironmentError{"GPU_ARCHS", v, err})
		}
		o.Targets = list
	}
	if o.Path == nil {
		o.Path = SplitPath(o.Getenv("AITER_JIT_PATH"))
	}
	var err error
	o.Limits, err = Limits(o.Limits, o.Getenv)
	o.err = errors.Join(o.err, err)
	return o
}

var errCompiles = errors.New("it contradicts what compiles: AITER_REBUILD (Options.Rebuild, --force) and AITER_RELOAD (Options.Reload)")

// ErrNoCheckout is returned by [Open] when a reload is asked for and there are
// no files that could change.
var ErrNoCheckout = errors.New("AITER_RELOAD (Options.Reload): the sources inside the program do not change; name a checkout with AITER_META_DIR (Options.Root)")

// withoutNative drops the word native from a list of targets: what the machine
// has needs no preference.
func withoutNative(list string) string {
	words := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ';' })
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return strings.TrimSpace(w) == "native" }), ",")
}

// EnvironmentError reports an environment variable with a bad value.
type EnvironmentError struct {
	Name, Value string
	Err         error
}

func (e *EnvironmentError) Error() string { return fmt.Sprintf("%s is %q: %v", e.Name, e.Value, e.Err) }

// Unwrap returns what is wrong with the value.
func (e *EnvironmentError) Unwrap() error { return e.Err }

// CacheDir returns the folder of the kernel cache as an absolute path: dir if it
// is not "", else what the environment says, else the user's usual place. The
// folder need not exist. Without any of them the error is an *EnvironmentError.
func CacheDir(dir string, getenv func(string) string) (string, error) {
	if dir = firstOf(dir, getenv("AITER_JIT_DIR")); dir != "" {
		return filepath.Abs(dir)
	}
	if base := getenv("XDG_CACHE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "aiter", "jit"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".cache", "aiter", "jit"), nil
	}
	return "", &EnvironmentError{Name: "AITER_JIT_DIR", Err: errNoCacheDir}
}

var errNoCacheDir = errors.New("no folder for the kernel cache: XDG_CACHE_HOME and HOME are unset too, or no absolute paths; set one of them")

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// Switch reads a variable that is on or off; off when it is not set. The error is
// an *EnvironmentError: a word that was meant as off must not be taken for on.
func Switch(name string, getenv func(string) string) (bool, error) {
	v := getenv(name)
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "1", "true", "yes", "on":
		return true, nil
	case "", "0", "false", "no", "off":
		return false, nil
	}
	return false, &EnvironmentError{name, v, errSwitch}
}

var errSwitch = errors.New("expected 1, true, yes or on, else 0, false, no, off or nothing")

// newManager wires the build manager.
func (o Options) newManager(ctx context.Context) (*jit.Manager, error) {
	if o.err != nil {
		return nil, o.err
	}
	var config *opconfig.Config
	var reading errgroup.Group // beside what waits for the disk
	reading.Go(func() (err error) {
		config, err = o.config()
		return err
	})
	store, err := OpenCache(ctx, CacheOptions{
		Dir: o.CacheDir, Path: o.Path, Limits: o.Limits, Trust: o.Trust, Getenv: o.Getenv, Build: true, Faulty: o.faulty,
	})
	if err != nil {
		return nil, err
	}
	memo := filehash.Open(store.MemoPath())
	tree, err := o.tree(store, memo)
	if err != nil {
		return nil, err
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	return jit.New(jit.Options{
		Config: config, Tree: tree, Cache: store, Memo: memo,
		Finder: &toolchain.Finder{Env: o.Getenv, Memo: memo},
		Jobs:   o.Jobs, Timeout: o.Timeout, LockTimeout: o.Wait, Force: o.Rebuild, NoCompile: o.NoCompile, Observer: o.Observer,
	}), nil
}

// faulty passes on what the cache says.
func (o Options) faulty(f cache.Fault) {
	if o.Observer != nil {
		o.Observer.Observe(jit.Event{Step: jit.Quarantined, Reason: f.Path + ": " + f.Reason})
	}
}

// tree is the source tree.
func (o Options) tree(store *cache.Dir, memo *filehash.Memo) (deps.Tree, error) {
	if o.Root != "" {
		return deps.NewDirTree(o.Root, memo)
	}
	return deps.NewEmbeddedTree(aiter.Sources, store), nil
}

// config reads the source tree's configuration.
func (o Options) config() (*opconfig.Config, error) {
	var files fs.FS = aiter.Sources
	if o.Root != "" {
		files = os.DirFS(o.Root)
	}
	return opconfig.Load(files, filepath.ToSlash(o.Config), opconfig.Options{Env: o.lookupEnv})
}

func (o Options) lookupEnv(name string) (string, bool) {
	v := o.Getenv(name)
	return v, v != ""
}
