package aitercmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/jit/target"
)

// moduleNames completes the names of modules.
func (a *app) moduleNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(true, false), cobra.ShellCompDirectiveNoFileComp
}

// opNames completes the names of operators.
func (a *app) opNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(false, true), cobra.ShellCompDirectiveNoFileComp
}

// allNames completes the names of modules and operators.
func (a *app) allNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(true, true), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) names(modules, ops bool) []cobra.Completion {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	for _, m := range cfg.Modules {
		if modules {
			names = append(names, cobra.CompletionWithDesc(m.Name, m.Doc))
		}
		for _, op := range m.Ops {
			if ops {
				names = append(names, cobra.CompletionWithDesc(op.Name, op.Doc))
			}
		}
	}
	return names
}

// axisValues completes the values of axes: "dtype=float16".
func (a *app) axisValues(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []cobra.Completion
	for _, m := range cfg.Modules {
		for _, axis := range m.Axes {
			for _, v := range axis.Values {
				if word := axis.Name + "=" + v; !slices.Contains(words, word) {
					words = append(words, word)
				}
			}
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// namedOperator finds the operator that a command line of test, bench, tune, run or profile names. The flags of the command depend on
// the operator, and may be before or after it. A name directly after a flag may be the flag's value: it counts only if no other
// argument is the name of an operator.
func namedOperator(args, known []string) string {
	start := slices.IndexFunc(args, func(arg string) bool {
		return slices.Contains([]string{"test", "bench", "tune", "run", "profile"}, arg)
	})
	found := ""
	for i := start + 1; start >= 0 && i < len(args); i++ {
		if !slices.Contains(known, args[i]) {
			continue
		}
		if !strings.HasPrefix(args[i-1], "-") {
			return args[i]
		}
		found = cmp.Or(found, args[i])
	}
	return found
}

// acceptUnknownFlags lets a command line without a known operator fail because of the operator, not because of its flags.
func (a *app) acceptUnknownFlags(cmd *cobra.Command) {
	cmd.FParseErrWhitelist.UnknownFlags = a.operator == "" && a.onlyOperator() == ""
}

// completeArch completes --arch.
func (a *app) completeArch(cmd *cobra.Command) {
	a.completeFlag(cmd, "arch", append([]string{native}, target.Known()...)...)
}

// completeFlag completes a flag from a list of words.
func (a *app) completeFlag(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		fmt.Fprintf(a.err, "%s: completion of --%s: %v\n", a.program.Name, flag, err)
	}
}
