package aitercmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/perf"
	"github.com/aiter-go/aiter/internal/profile"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/internal/upstream"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// The exit codes are part of the interface: scripts depend on them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitConfig      = 3
	exitToolchain   = 4
	exitCompile     = 5
	exitVerify      = 6
	exitCache       = 7
	exitDevice      = 8
	exitInterrupted = 130
)

// exitStatus is an exit code with the errors that lead to it.
type exitStatus struct {
	code    int
	meaning string
	is      func(error) bool
}

// exitStatuses returns the exit codes in the order of their precedence.
func exitStatuses() []exitStatus {
	return []exitStatus{
		{exitUsage, "the command line or a variable is wrong: unknown command, flag, operator, module or target", isAny(
			as[*usageError], as[*opconfig.UnknownModuleError], as[*opconfig.UnknownOpError], as[*opconfig.UnknownAxisError],
			outsideConfig(as[*target.UnknownError]), outsideConfig(as[*target.SyntaxError]), as[*optests.UnknownOpError],
			as[*optests.CaseError], as[*optests.ArgumentError], as[*tensor.DTypeError], as[*tensor.DeviceError],
			as[*opconfig.UnsupportedTargetError], as[*profile.ImportError],
			as[*registry.EnvironmentError], as[*perf.OptionsError], as[*fleet.ReferenceError], as[*fleet.KeyError],
			as[*upstream.UnknownModuleError], as[*upstream.AdaptError], invalidCPUSetting)},
		{exitConfig, "the configuration is not valid, or a module has no sources for a target", isAny(
			as[*opconfig.Error], as[*opconfig.NoSourcesError], as[*opconfig.DuplicateSourceError], as[*opconfig.VersionError],
			as[*opconfig.ClashError], as[*upstream.Error], as[*jit.IncludeError], as[*jit.SourcesError])},
		{exitCache, "the cache folder cannot be used: not writable, full, or writable by other users", isAny(
			as[*cache.UntrustedError], as[*cache.AccessError], as[*cache.ReadOnlyError])},
		{exitCompile, "a compiler or linker failed, or ran out of time", isAny(as[*jit.CompileError], as[*jit.ChangingError])},
		{exitToolchain, "a compiler or a profiler is missing, does not respond, cannot build for the target, or must not be used", isAny(
			as[*toolchain.NotFoundError], as[*jit.NoCompileError], as[*toolchain.UnsupportedTargetError],
			as[*toolchain.ProbeError], as[*toolchain.RootError], as[*profilerError])},
		{exitVerify, "a result of an operator is wrong, or an entry of the cache or a set in a registry is damaged or not trusted", isAny(
			as[*verifyError], as[*jit.IncompleteError], as[*registry.VerifyError], as[*registry.UnverifiedError],
			as[*fleet.UntrustedError], as[*fleet.DamageError], as[*fleet.StoredError])},
		{exitDevice, "no device of this machine can run the operator", isAny(
			as[*noDeviceError], as[*device.UnavailableError], as[*device.IndexError])},
	}
}

// exitCode returns the exit code for an error of a command.
func exitCode(err error) int {
	for _, o := range exitStatuses() {
		if o.is(err) {
			return o.code
		}
	}
	return exitFailure
}

// as reports whether err is or wraps an E.
func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// outsideConfig excludes errors inside the configuration, which have their own exit
// code.
func outsideConfig(is func(error) bool) func(error) bool {
	return func(err error) bool { return is(err) && !as[*opconfig.Error](err) }
}

// isAny returns a function that reports whether one of the checks is true.
func isAny(checks ...func(error) bool) func(error) bool {
	return func(err error) bool {
		for _, is := range checks {
			if is(err) {
				return true
			}
		}
		return false
	}
}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// usagef formats a usage error.
func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// verifyError reports wrong results or damaged entries. The details have been printed.
type verifyError struct{ what string }

func (e *verifyError) Error() string { return e.what }

// newExitCodes returns a help topic: a command that does not run.
func newExitCodes(a *app) *cobra.Command {
	var b strings.Builder
	fmt.Fprintf(&b, "Exit codes of %s. When several apply, the first in this list is used.\n\n", a.program.Name)
	fmt.Fprintf(&b, "  %3d  interrupted by SIGINT (Ctrl-C) or SIGTERM; for other signals 128 plus their number: "+
		"129 SIGHUP, 131 SIGQUIT, 141 no process reads the output\n", exitInterrupted)
	for _, o := range exitStatuses() {
		fmt.Fprintf(&b, "  %3d  %s\n", o.code, o.meaning)
	}
	fmt.Fprintf(&b, "  %3d  any other failure\n", exitFailure)
	fmt.Fprintf(&b, "  %3d  success", exitOK)
	return &cobra.Command{Use: "exit-codes", Short: "Meanings of the exit codes", Long: b.String()}
}

// invalidCPUSetting reports whether an operator refused a variable that the CPU
// kernels read (csrc/include/aiter/cpu_settings.h).
func invalidCPUSetting(err error) bool {
	var refused *registry.OperatorError
	return errors.As(err, &refused) &&
		(strings.Contains(refused.Message, "AITER_NUM_THREADS: expected ") || strings.Contains(refused.Message, "AITER_CPU_ISA: expected "))
}
