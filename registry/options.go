package registry

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/trace"
)

// Options of [Open]. A field that is set wins over its environment variable, and the
// variable wins over the default. The zero value suits a service: the sources are those
// in the program.
type Options struct {
	CacheDir    string          // AITER_JIT_DIR; default $XDG_CACHE_HOME/aiter/jit
	Path        []string        // AITER_JIT_PATH: read-only caches, such as prebuilt ones, searched after CacheDir
	Limits      cache.Limits    // AITER_JIT_MAX_SIZE, _MAX_AGE, _MAX_COUNT; default [cache.DefaultLimits]; negative: none
	Root        string          // AITER_META_DIR (which may list several): a folder with a configuration and sources; see Modules
	Roots       []string        // more folders like Root
	Config      string          // AITER_CONFIG: the configuration in the only root, relative to it
	Targets     []target.Target // GPU_ARCHS: preferred targets; a device gets the first that it runs
	AIter       string          // AITER_CHECKOUT: the absolute path of a checkout of AMD's AIter; see Modules
	Jobs        int             // MAX_JOBS: compilers at a time
	Rebuild     bool            // AITER_REBUILD: compile everything again
	Trust       bool            // AITER_TRUST_JIT_DIR: use caches that other users can change
	Timeout     time.Duration   // of one compiler run; 0: [jit.DefaultTimeout]
	LockTimeout time.Duration   // of the wait for a build of another process; 0: three times the time limit of a compiler run
	Observer    jit.Observer    // receives the events of builds

	// Trace records a timeline of builds, loads, calls and launches, and of the allocations, copies and waits of
	// [Registry.Devices]. Devices measure kernels with events, without a wait. Work on a stream that is captured in a graph gets
	// no time. Several registries may share a recorder, and it may be paused. nil: nothing is recorded, and calls have no extra
	// cost.
	Trace *trace.Recorder

	// Modules are sources of modules and operators besides those of aiter: each an [embed.FS] of the program, or a
	// folder ([os.DirFS]). Their code can include the headers <aiter/...> without a flag for their folder. The names of
	// modules and operators must be unique among all sources; a name that two sources have is a [*ClashError].
	//
	// A folder of Root, Roots or AITER_META_DIR is one more source. If it declares all modules of an embedded source, it
	// replaces that source, so that a user can edit what the program contains. If it declares the support module,
	// module_aiter_ffi, it is a complete tree of aiter, and replaces the built-in modules and headers. A
	// configuration with "builtin = false" does the same.
	//
	// AIter adds operators that are built from the sources of a checkout of AMD's AIter. Calls of prebuilt code do not read the checkout,
	// so the folder need not exist.
	Modules []Source

	// NoBuiltin leaves out the operators of aiter. Their headers and the support module stay.
	NoBuiltin bool

	// Logger receives warnings, the compiles, and at level debug each step of builds. A call of loaded
	// code, and a build that finds everything in the cache, log nothing at level info or above. nil:
	// [slog.Default] with the level of AITER_LOG_LEVEL (trace, debug, info, warn or error) if that
	// is set. It writes messages of level info and above to standard error, unless the program changes it.
	Logger *slog.Logger

	// Remote opens the source of prebuilt sets that AITER_JIT_REMOTE names. [fleet.Open] pulls signed sets from a registry for
	// container images. If no cache has the code of a call, it is pulled from this source; if that fails, it is compiled. nil:
	// AITER_JIT_REMOTE has no effect.
	//
	// [fleet.Open]: https://pkg.go.dev/github.com/aiter-go/aiter/fleet#Open
	Remote jit.OpenSource

	// Verify (AITER_VERIFY) checks every call against the CPU, or against its reference. The registry copies
	// the arguments to the host, calls the operator and waits for it, calls the CPU
	// build on the copies, and compares all arguments that the schema marks as
	// written, states and in-place arguments included. The tolerance is that of the
	// operator in the configuration, else that of the element type. Calls on the CPU
	// run twice, which finds results that differ from run to run, such as those
	// of data races. Verify needs a C++ compiler, host memory for the arguments, and time. It
	// cannot be used while a stream is captured, or while other code writes to the
	// arguments.
	Verify bool

	// References are references of operators by name, with which Verify compares their calls in place of the CPU build. Their modules need
	// no CPU target, and no C++ compiler.
	References map[string]Reference

	// Tune (AITER_TUNE) uses the launch parameters that aiterctl tune, or [Op.KeepTuning], stores with the code in CacheDir or
	// Path. They hold for one device, its driver, the library and a shape class; other calls use the operator's own launch plan.
	// The registry reads them when it loads code. Tune measures nothing.
	Tune bool

	// NoCompile (AITER_NO_COMPILE) never runs a compiler: all code comes from CacheDir
	// or Path. A call whose code is missing there, or was built from other sources,
	// fails with a [*jit.NoCompileError]. NoCompile is for services whose images hold
	// both prebuilt kernels and compilers. It contradicts Rebuild and Reload.
	NoCompile bool

	// Reload (AITER_RELOAD) watches the configuration and the inputs of loaded
	// modules, and replaces their code as soon as the new code is built. Calls in
	// progress finish with the code with which they began. Code that cannot be built or
	// loaded replaces nothing; [Registry.ReloadErr] returns the error. Reload needs a
	// checkout (Root). Old code stays in memory, so Reload is for the development of
	// operators, not for services. The support library is not reloaded.
	Reload bool

	// Host configures [Op.CallHost].
	Host HostOptions

	// Getenv reads an environment variable; nil: os.Getenv.
	Getenv func(string) string
}

// HostOptions configure calls on tensors in host memory. The zero value suits most programs.
type HostOptions struct {
	Pool    device.PoolOptions // of the pool of each device
	Piece   int64              // bytes that a piece of a call copies in one direction; 0: 4 MiB, or 2 MiB if tensors are not pinned
	Buffers int                // pieces of a call in flight at once; 0: 16, or 4 to 32 if tensors are not pinned
	Calls   int                // calls on a device at once; later ones wait; 0: 2
}

// Source is a tree of modules with their configuration, config/opt_compiler.toml or opt_compiler.toml.
type Source = settings.Source

// ClashError reports a name that two sources have.
type ClashError = opconfig.ClashError

// EnvironmentError reports an environment variable with an invalid value.
type EnvironmentError = settings.EnvironmentError

// ErrNoCheckout is returned by [Open] if Reload is requested and the sources are
// those in the program.
var ErrNoCheckout = errors.New("AITER_RELOAD (Options.Reload): the sources inside the program do not change; " +
	"name a checkout with AITER_META_DIR (Options.Root)")

var errReloadCompiles = errors.New("it contradicts AITER_RELOAD (Options.Reload), which compiles; unset one of them")

// resolve fills unset fields from the environment and returns the settings of the
// build manager.
func (o Options) resolve() (Options, settings.Settings, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	o.Observer = withTrace(o.Observer, o.Trace)
	roots := o.Roots
	if o.Root != "" {
		roots = append([]string{o.Root}, roots...)
	}
	s, err := settings.Settings{
		CacheDir: o.CacheDir, Path: o.Path, Limits: o.Limits, Roots: roots, Config: o.Config, Sources: o.Modules, AIter: o.AIter,
		NoBuiltin: o.NoBuiltin,
		Jobs:      o.Jobs, Rebuild: o.Rebuild, NoCompile: o.NoCompile, Trust: o.Trust,
		Timeout: o.Timeout, LockTimeout: o.LockTimeout, Remote: o.Remote, Observer: o.Observer, Logger: o.Logger, Getenv: o.Getenv,
	}.Resolve()
	errs := []error{err}
	if !o.Verify {
		o.Verify, err = settings.Switch("AITER_VERIFY", o.Getenv)
		errs = append(errs, err)
	}
	if !o.Tune {
		o.Tune, err = settings.Switch("AITER_TUNE", o.Getenv)
		errs = append(errs, err)
	}
	if !o.Reload {
		o.Reload, err = settings.Switch("AITER_RELOAD", o.Getenv)
		errs = append(errs, err)
	}
	if o.Reload && s.NoCompile {
		errs = append(errs, settings.Contradiction("AITER_NO_COMPILE", o.Getenv, errReloadCompiles))
	}
	if o.Reload && !s.HasFolder() {
		errs = append(errs, ErrNoCheckout)
	}
	if o.Targets == nil {
		o.Targets, err = settings.PreferredTargets(o.Getenv)
		errs = append(errs, err)
	}
	return o, s, errors.Join(errs...)
}
