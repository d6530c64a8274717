package aitercmd

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/settings"
)

const rootLong = ` builds GPU operators ahead of time, manages the kernel cache, and runs
and checks operators.`

const rootExample = `  aiterctl doctor
  aiterctl build --all --arch gfx942,gfx950,cpu
  aiterctl run causal_conv1d_fwd --dtype bfloat16 --use_silu --verify
  aiterctl test causal_conv1d_fwd
  aiterctl bench causal_conv1d_fwd --html report.html
  aiterctl explain module_causal_conv1d --arch cpu`

const rootListedExample = `  aiterctl doctor
  aiterctl test OP
  aiterctl bench OP --html report.html
  aiterctl inspect OP --arch gfx942
  aiterctl watch OP --root . --test
  aiterctl build --all --arch gfx942,gfx950,cpu --output kernels`

func newRoot(a *app) *cobra.Command {
	root := group(&cobra.Command{
		Use:           a.program.Name,
		Short:         "Build, cache, run and check GPU operators",
		Long:          a.program.Name + rootLong + "\n\n" + variablesHelp(),
		Version:       a.version().String(),
		Example:       a.examples(rootExample, rootListedExample),
		SilenceErrors: true,
		SilenceUsage:  true,
	})
	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentPreRunE = a.prepare
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.SetOut(a.out)
	root.SetErr(a.err)
	a.addFlags(root)
	root.AddCommand(
		newBuild(a), newCleanCache(a), newList(a), newDescribe(a), newExplain(a), newInspect(a), newRun(a), newTest(a), newBench(a),
		newProfile(a), newTune(a),
		newWatch(a), newDoctor(a), newEnv(a), newDevices(a), newNew(a), newGenerate(a), newCache(a), newPush(a), newPull(a),
		newInspectRemote(a), newAIter(a), newConfig(a), newVersion(a), newExitCodes(a),
	)
	root.SetHelpCommand(newHelp(root))
	if a.width > 0 {
		wrapped := fmt.Sprintf(".FlagUsagesWrapped %d", a.width)
		root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", wrapped))
	}
	a.rename(root)
	return root
}

func (a *app) addFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringArrayVar(&a.roots, "root", nil,
		"a `DIR` with modules, or a checkout that replaces the built-in ones; may be repeated (default $AITER_META_DIR)")
	f.StringVar(&a.aiter, "aiter", "", "a checkout of AMD's AIter in `DIR`, whose operators are added (default $AITER_CHECKOUT)")
	f.BoolVar(&a.noBuiltin, "no-builtin", false, "leave out the built-in operators; their headers stay")
	f.StringVar(&a.config, "config", "",
		"configuration, relative to the only --root (default $AITER_CONFIG, else "+settings.DefaultConfig+" or "+settings.ModuleConfig+")")
	f.StringVar(&a.cacheDir, "cache-dir", "", "folder of the kernel cache (default $AITER_JIT_DIR, else aiter/jit in the user's cache folder)")
	f.StringVar(&a.cachePath, "cache-path", "", "read-only caches, such as prebuilt ones: `DIR:DIR` (default $AITER_JIT_PATH)")
	f.StringVar(&a.maxSize, "cache-max-size", "", "size limit of the kernel cache: 5GB, 500MB (default $AITER_JIT_MAX_SIZE, else 10GB)")
	f.BoolVar(&a.json, "json", false, "print JSON to stdout")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log level debug, and longer explanations")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "no progress, errors only")
	f.StringVar(&a.logLevel, "log-level", "", "trace, debug, info, warn or error (default $AITER_LOG_LEVEL, else warn)")
	f.StringVar(&a.color, "color", "auto", "colors: auto, always or never")
	root.MarkFlagsMutuallyExclusive("verbose", "quiet")
}

// prepare reads the shared flags and sets up the logger. It runs before every command.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	if a.verbose && a.quiet {
		return usagef("--verbose and --quiet exclude each other")
	}
	if err := checkArchFlag(cmd); err != nil {
		return err
	}
	if err := a.useAIter(); err != nil {
		return err
	}
	var err error
	if a.cacheSize, err = parseSize(a.maxSize); err != nil {
		return err
	}
	level, err := a.level()
	if err != nil {
		return err
	}
	colored, err := a.colored()
	if err != nil {
		return err
	}
	a.log = a.err.Logger(colored, level)
	return nil
}

// useAIter makes --aiter the value of AITER_CHECKOUT, which configurations name. As with the variable, the folder need not exist.
func (a *app) useAIter() error {
	if a.aiter == "" {
		return nil
	}
	dir, err := filepath.Abs(a.aiter)
	if err != nil {
		return &usageError{err}
	}
	getenv := a.getenv
	a.getenv = func(name string) string {
		if name == settings.CheckoutVariable {
			return dir
		}
		return getenv(name)
	}
	return nil
}

func (a *app) level() (slog.Level, error) {
	if a.logLevel != "" {
		level, err := settings.ParseLevel(a.logLevel)
		if err != nil {
			return level, usagef("--log-level %q: %w", a.logLevel, err)
		}
		return level, nil
	}
	level, set, err := settings.LogLevel(a.getenv)
	switch {
	case set || err != nil:
		return level, err
	case a.verbose:
		return slog.LevelDebug, nil
	case a.quiet:
		return slog.LevelError, nil
	}
	return slog.LevelWarn, nil
}

func (a *app) colored() (bool, error) {
	switch a.color {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return a.err.Interactive() && a.getenv("NO_COLOR") == "", nil
	}
	return false, usagef("--color %q: expected auto, always or never", a.color)
}

// group completes a command that has only subcommands: without one it prints its help.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return usagef("unknown command %q for %q; did you mean %s?", args[0], cmd.CommandPath(), strings.Join(near, " or "))
		}
		return usagef("unknown command %q for %q", args[0], cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// args converts the errors of cobra's argument checks to usage errors.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{fmt.Errorf("%s: %w", cmd.CommandPath(), err)}
		}
		return nil
	}
}

// newHelp returns a help command that, unlike cobra's, fails for an unknown topic.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command or topic",
		RunE: func(_ *cobra.Command, topic []string) error {
			cmd, rest, err := root.Find(topic)
			if err != nil || len(rest) > 0 {
				return usagef("unknown help topic %q", strings.Join(topic, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			for _, c := range root.Commands() {
				names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
